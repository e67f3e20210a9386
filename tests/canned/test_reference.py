"""Ready-made models do what those of tf.estimator 2.15 do, from its checkpoints on."""

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
STRATEGIES = {"none": {}, "mirrored_x2": {"strategy": "mirrored", "num_replicas": 2}}


def variables_at(name, step):
    prefix = f"{name}/{step}/"
    return {key.removeprefix(prefix): ARRAYS[key] for key in ARRAYS if key.startswith(prefix)}


def write_checkpoint(values, model_dir, step):
    """Writes variables as tf.estimator did."""
    with tf.Graph().as_default(), V1.Session() as session:
        for key, value in values.items():
            V1.get_variable(key, initializer=value)
        session.run(V1.global_variables_initializer())
        V1.train.Saver().save(session, f"{model_dir}/model.ckpt", global_step=step)


def make(name, model_dir, **config):
    config = est.RunConfig(save_summary_steps=None, log_step_count_steps=None, **config)
    module = est.compat.v1 if name in model_cases.V1_CASES else est
    return CASES[name].make(module, model_dir=str(model_dir), config=config)


def check_variables(ours, theirs):
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        assert ours[key].dtype == value.dtype, key
        np.testing.assert_allclose(ours[key], value, rtol=1e-5, atol=1e-5, err_msg=key)


def input_fn(name):
    case = CASES[name]
    if name in experimental_cases.CASES:
        batches_of = case.input_fn(repeats=True)
    else:
        data = model_cases.FEATURES, model_cases.LABELS[case.label]

        def batches_of(size):
            return tf.data.Dataset.from_tensor_slices(data).batch(size).repeat()

    def make(input_context):
        return batches_of(input_context.get_per_replica_batch_size(model_cases.BATCH_SIZE))

    return make


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
    rows = model.predict(eval_input_fn(name))
    for row, expected in zip(rows, RESULTS[name]["predictions"], strict=False):
        assert set(row) == set(expected)
        for key, value in expected.items():
            found = row[key].astype(str) if row[key].dtype == object else row[key]
            if found.dtype.kind == "f":
                np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5, err_msg=key)
            else:
                assert found.tolist() == value, key


# The default run takes as many as show each model, optimizer, column and form once.
DEFAULT = (
    *("linear_5", "dnn_dropout", "dnn_head", "both_2", "both_5"),
    *model_cases.V1_CASES,
    *("simple_context", "lstm_clipped", "gru", "steps"),
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in DEFAULT else [pytest.mark.full]) for name in CASES],
)
def test_twenty_steps_from_a_checkpoint_of_2_15_are_its_steps(name, tmp_path):
    """Losses are not compared: weights, and so gradients, are."""
    write_checkpoint(variables_at(name, 0), tmp_path, 0)
    with make(name, tmp_path, iterations_per_loop=7) as model:
        model.train(input_fn(name), max_steps=model_cases.NUM_STEPS)
        ours = model_cases.read_variables(str(tmp_path), model_cases.NUM_STEPS)
        theirs = variables_at(name, model_cases.NUM_STEPS)
        if getattr(CASES[name], "is_random", False):
            assert set(ours) == set(theirs)
            return
        check_variables(ours, theirs)
        check_results(name, model)


@pytest.mark.parametrize(
    ("name", "loop"), [("both_2", 1), ("linear_head", 100), ("simple_context", 7)]
)
def test_two_replicas_take_the_same_steps(name, loop, tmp_path):
    write_checkpoint(variables_at(name, 0), tmp_path, 0)
    with make(name, tmp_path, iterations_per_loop=loop, **STRATEGIES["mirrored_x2"]) as model:
        model.train(input_fn(name), max_steps=model_cases.NUM_STEPS)
        ours = model_cases.read_variables(str(tmp_path), model_cases.NUM_STEPS)
        check_variables(ours, variables_at(name, model_cases.NUM_STEPS))


@pytest.mark.parametrize("name", ["both_5", "dnn_dropout"])
def test_a_new_model_starts_as_in_2_15(name, tmp_path):
    with make(name, tmp_path) as model:
        model.train(input_fn(name), max_steps=1)
    ours, theirs = model_cases.read_variables(str(tmp_path), 0), variables_at(name, 0)
    assert {key: value.shape for key, value in ours.items()} == {
        key: value.shape for key, value in theirs.items()
    }
    for key, value in theirs.items():
        # All but kernels and embeddings, which are random.
        if not key.endswith(("kernel", "embedding_weights")):
            np.testing.assert_array_equal(ours[key], value, err_msg=key)


def test_the_learning_rate_is_that_of_the_checkpoint(tmp_path):
    values = variables_at("linear_2", 0)
    values["training/Ftrl/learning_rate"] = np.float32(1e-12)
    write_checkpoint(values, tmp_path, 0)
    with make("linear_2", tmp_path) as model:
        model.train(input_fn("linear_2"), max_steps=2)
        weights = model.get_variable_value("linear/linear_model/x/weights")
        np.testing.assert_allclose(weights, 0, atol=1e-6)
