"""What `reference/make_reference.py` recorded of tf.estimator 2.15, and how to compare with it."""

import itertools
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.canned import experimental_cases, model_cases

V1 = tf.compat.v1
FOLDER = pathlib.Path(__file__).parent / "reference"
FILES = ("models", "v1_models", "experimental")
ARRAYS = {key: value for file in FILES for key, value in np.load(FOLDER / f"{file}.npz").items()}
RESULTS = {
    name: result
    for file in FILES
    for name, result in json.loads((FOLDER / f"{file}.json").read_text()).items()
}
CASES = {**model_cases.CASES, **model_cases.V1_CASES, **experimental_cases.CASES}


def variables_at(name, step):
    """All variables of a model's checkpoint."""
    prefix = f"{name}/{step}/"
    return {key.removeprefix(prefix): ARRAYS[key] for key in ARRAYS if key.startswith(prefix)}


def write_checkpoint(values, model_dir, step):
    """Writes variables as tf.estimator did."""
    with tf.Graph().as_default(), V1.Session() as session:
        for key, value in values.items():
            V1.get_variable(key, initializer=value)
        session.run(V1.global_variables_initializer())
        V1.train.Saver().save(session, f"{model_dir}/model.ckpt", global_step=step)


def check_variables(ours, theirs):
    """Fails unless names, types and, to 1e-5, values are the same."""
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        assert ours[key].dtype == value.dtype, key
        np.testing.assert_allclose(ours[key], value, rtol=1e-5, atol=1e-5, err_msg=key)


def make(name, model_dir, **config):
    """Makes the model of a case."""
    config = est.RunConfig(save_summary_steps=None, log_step_count_steps=None, **config)
    module = est.compat.v1 if name in model_cases.V1_CASES else est
    return CASES[name].make(module, model_dir=str(model_dir), config=config)


def input_fn(name):
    """The recorded batches in order, without end, divided among all replicas."""
    case = CASES[name]
    if name in experimental_cases.CASES:
        batches_of = case.input_fn(repeats=True)
    else:
        data = model_cases.FEATURES, model_cases.LABELS[case.label]

        def batches_of(size):
            return tf.data.Dataset.from_tensor_slices(data).batch(size).repeat()

    def make_dataset(input_context):
        data = batches_of(input_context.get_per_replica_batch_size(model_cases.BATCH_SIZE))
        return data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    return make_dataset


def eval_input_fn(name):
    case = CASES[name]
    if name in experimental_cases.CASES:
        return case.input_fn(repeats=False)
    return model_cases.eval_input_fn(case.label)


def check_results(name, model):
    evaluation = model.evaluate(eval_input_fn(name))
    theirs = RESULTS[name]["evaluation"]
    assert set(evaluation) == set(theirs)
    for key, value in theirs.items():
        if key.startswith("auc") and name in model_cases.V1_CASES:
            continue  # 2.15 interpolated in another way there.
        assert evaluation[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key
    predictions = RESULTS[name]["predictions"]
    rows = itertools.islice(model.predict(eval_input_fn(name)), len(predictions))
    for row, expected in zip(rows, predictions, strict=True):
        assert set(row) == set(expected)
        for key, value in expected.items():
            found = row[key].astype(str) if row[key].dtype == object else row[key]
            if found.dtype.kind == "f":
                np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5, err_msg=key)
            else:
                assert found.tolist() == value, key
