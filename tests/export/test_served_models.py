"""What a process with nothing but TensorFlow gets from an export is what `predict` gives."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests import pairwise
from tests.export import clean_process
from tests.export.exported_models import CASES, STRATEGIES, WORDS

# As what serves them does: of bfloat16, it changes the result.
OPTIMIZES_GRAPHS = True
# Models of other kinds are trained by these.
MORE = [f"plain under {name}" for name in ("one_device", "mirrored_x1", "mirrored_x2")]
MORE += ["plain under central_storage_x2"]
NAMES = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name in MORE else name for name in CASES],
)


def dataset_of(features):
    """Batches of 2 examples, the last of 1."""

    def input_fn():
        values = features() if callable(features) else features
        return tf.data.Dataset.from_tensor_slices(values).batch(2)

    return input_fn


def export_case(case, root, vocabulary):
    """Trains, exports, and predicts; returns the job of the clean process and the predictions."""
    config = est.RunConfig(**STRATEGIES[case.strategy], log_step_count_steps=None)
    make = case.make or est.Estimator
    params = {"vocabulary": str(vocabulary)}
    input_fn = dataset_of(case.features)
    with make(case.model_fn, str(root / "model"), config, params) as trained:
        trained.train(input_fn, steps=2)
        predictions = list(trained.predict(input_fn))
        exporting = trained
        if case.is_warm_started:
            exporting = est.Estimator(
                case.model_fn, str(root / "new"), params=params, warm_start_from=trained.model_dir
            )
        path = exporting.export_saved_model(str(root / "export"), case.receiver_fn)
    return {"path": path.decode(), "tags": ["serve"], "feeds": case.feeds}, predictions


def in_columns(predictions):
    if not isinstance(predictions[0], dict):
        return {None: np.stack(predictions)}
    return {key: np.stack([row[key] for row in predictions]) for key in predictions[0]}


@pytest.fixture(scope="module")
def served(tmp_path_factory, request):
    """By case: the job, the predictions, and the answers of a clean process."""
    root = tmp_path_factory.mktemp("served")
    vocabulary = root / "words.txt"
    vocabulary.write_text("\n".join(WORDS) + "\n")
    jobs, predictions = {}, {}
    is_full = pairwise.is_full(request.config)
    for name, case in CASES.items():
        if name in MORE and not is_full:
            continue
        folder = root / name.replace(" ", "_")
        folder.mkdir()
        jobs[name], found = export_case(case, folder, vocabulary)
        predictions[name] = in_columns(found)
    vocabulary.unlink()
    (root / "jobs").write_bytes(pickle.dumps(jobs))
    subprocess.run(
        [sys.executable, clean_process.__file__, root / "jobs", root / "answers"],
        cwd=root,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        check=True,
        timeout=300,
    )
    answers = pickle.loads((root / "answers").read_bytes())
    return {name: (jobs[name], predictions[name], answers[name]) for name in jobs}


@pytest.mark.parametrize("way", ["functions", "session"])
@pytest.mark.slow
@NAMES
def test_every_signature_answers_as_predict(name, way, served):
    _, predictions, answers = served[name]
    outputs = CASES[name].outputs or {"serving_default": {key: key for key in predictions}}
    assert sorted(answers[way]) == sorted(outputs)
    for signature, keys in outputs.items():
        assert sorted(answers[way][signature]) == sorted(keys)
        for key, prediction in keys.items():
            expected, found = predictions[prediction], answers[way][signature][key]
            assert found.shape == expected.shape
            is_half = expected.dtype == tf.bfloat16.as_numpy_dtype
            if is_half or expected.dtype.kind == "f":
                # Some processors sum batches of other sizes in another order. bfloat16 rounds each
                # part of a sum by up to 2**-9 of it, on both sides, and the absolute values of the
                # parts add up to 1 to 6 here, with the weights of eight seeds. float32 rounds by
                # up to 2**-24, so a sum near zero of such parts may differ by 1e-6.
                limits = {"rtol": 2**-7, "atol": 2**-5} if is_half else {"rtol": 1e-6, "atol": 1e-6}
                found, expected = found.astype(np.float32), expected.astype(np.float32)
                np.testing.assert_allclose(found, expected, **limits)
            else:
                assert found.tolist() == expected.tolist()


@NAMES
def test_no_device_is_left(name, served):
    content = pathlib.Path(served[name][0]["path"], "saved_model.pb").read_bytes()
    for word in (b"/device:", b"/job:", b"/task:", b"/gpu:", b"/cpu:"):
        assert word not in content.lower()
