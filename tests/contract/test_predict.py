"""`Estimator.predict`: what it yields, and its arguments."""

import os
import types

import numpy as np
import pytest

from tests.contract.names import (
    PREDICT,
    batches_of,
    est,
    forever,
    mean_model_fn,
    numbers,
    tf,
    v1,
    weight_after,
)

W4 = np.float32(weight_after(4, 1.0))
MODEL_CALLS, INPUT_CALLS = [], []


def model_fn(features, labels, mode, params):
    MODEL_CALLS.append({"mode": mode, "labels": labels, "params": params})
    spec = mean_model_fn(features, None, mode)
    x = spec.predictions["x"]
    predictions = {
        "y": spec.predictions["y"],
        "x": x,
        "pair": tf.stack([x, x + 1], axis=1),
        "text": tf.strings.as_string(tf.cast(x, tf.int32)),
    }
    if params.get("shape") == "tensor":
        predictions = x
    elif params.get("shape") == "unequal":
        predictions = {"x": x, "scalar": tf.constant([1.0])}
    elif params.get("shape") == "number":
        predictions = {"x": x, "number": tf.constant(1.0)}
    return est.EstimatorSpec(
        mode,
        predictions=predictions,
        loss=spec.loss,
        train_op=spec.train_op,
        prediction_hooks=params.get("hooks"),
    )


class Counting(v1.train.SessionRunHook):
    def __init__(self):
        self.calls = []

    def begin(self):
        self.calls.append("begin")

    def after_run(self, run_context, run_values):
        self.calls.append("after_run")
        self.graph = v1.get_default_graph() is run_context.session.graph

    def end(self, session):
        self.calls.append("end")


@pytest.fixture(scope="module")
def trained_dir(tmp_path_factory):
    path = os.fspath(tmp_path_factory.mktemp("trained"))
    config = est.RunConfig(save_checkpoints_steps=2, keep_checkpoint_max=None)
    est.Estimator(model_fn, path, config).train(forever(), steps=4)
    return path


def make(trained_dir, **params):
    return est.Estimator(model_fn, trained_dir, params=params)


@pytest.fixture(scope="module")
def predictor(trained_dir):
    return make(trained_dir)


@pytest.fixture(scope="module")
def rows(predictor):
    return list(predictor.predict(batches_of([0, 1], [2])))


def test_returns_a_generator(predictor):
    generator = predictor.predict(numbers(1))
    assert isinstance(generator, types.GeneratorType) or hasattr(generator, "__next__")
    assert iter(generator) is generator


def test_one_for_each_example_in_order(rows):
    assert [row["x"] for row in rows] == [0, 1, 2]


def test_keys(rows):
    assert list(rows[0]) == ["y", "x", "pair", "text"]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_value(rows, index):
    assert rows[index]["y"] == pytest.approx(W4 * index)


@pytest.mark.parametrize(
    ("key", "kind"), [("y", np.float32), ("pair", np.ndarray), ("text", bytes)]
)
def test_type(rows, key, kind):
    assert isinstance(rows[1][key], kind)


def test_inner_dimensions_are_kept(rows):
    np.testing.assert_array_equal(rows[1]["pair"], np.float32([1, 2]))


def test_text_is_bytes(rows):
    assert rows[2]["text"] == b"2"


def test_whole_batches(predictor):
    batches = list(predictor.predict(batches_of([0, 1], [2]), yield_single_examples=False))
    assert [len(batch["x"]) for batch in batches] == [2, 1]
    assert isinstance(batches[0]["x"], np.ndarray)
    np.testing.assert_array_equal(batches[0]["pair"], np.float32([[0, 1], [1, 2]]))


@pytest.mark.parametrize("keys", [["y"], ["y", "x"], ["text"], ("y",)], ids=str)
def test_predict_keys_choose(predictor, keys):
    assert set(next(predictor.predict(numbers(1), predict_keys=keys))) == set(keys)


def test_unknown_predict_keys_are_left_out(predictor):
    assert set(next(predictor.predict(numbers(1), predict_keys=["y", "nonsense"]))) == {"y"}


def test_predict_keys_that_name_nothing_are_a_value_error(predictor):
    with pytest.raises(ValueError):
        list(predictor.predict(numbers(1), predict_keys=["nonsense"]))


def test_predict_keys_of_a_tensor_are_a_value_error(trained_dir):
    with pytest.raises(ValueError):
        list(make(trained_dir, shape="tensor").predict(numbers(1), predict_keys=["x"]))


def test_a_tensor_is_cut_into_rows(trained_dir):
    found = list(make(trained_dir, shape="tensor").predict(numbers(3, 2)))
    assert found == [0, 1, 2]
    assert isinstance(found[0], np.float32)


def test_a_tensor_in_whole_batches(trained_dir):
    found = list(
        make(trained_dir, shape="tensor").predict(numbers(3, 2), yield_single_examples=False)
    )
    assert [batch.tolist() for batch in found] == [[0, 1], [2]]


def test_unequal_lengths_are_a_value_error(trained_dir):
    with pytest.raises(ValueError):
        list(make(trained_dir, shape="unequal").predict(numbers(2, 2)))


def test_a_number_without_a_batch_dimension_is_an_error(trained_dir):
    with pytest.raises((ValueError, IndexError)):
        list(make(trained_dir, shape="number").predict(numbers(2, 2)))


def test_unequal_lengths_in_whole_batches(trained_dir):
    generator = make(trained_dir, shape="unequal").predict(
        numbers(2, 2), yield_single_examples=False
    )
    assert next(generator)["scalar"].tolist() == [1.0]


def test_checkpoint_path(trained_dir, predictor):
    path = os.path.join(trained_dir, "model.ckpt-2")
    row = next(predictor.predict(batches_of([1]), checkpoint_path=path))
    assert row["y"] == pytest.approx(weight_after(2, 1.0))


def test_positional_arguments(trained_dir, predictor):
    path = os.path.join(trained_dir, "model.ckpt-2")
    found = list(predictor.predict(batches_of([1, 1]), ["y"], None, path, False))
    assert found[0]["y"] == pytest.approx([weight_after(2, 1.0)] * 2)


def test_missing_checkpoint_path_is_an_error(predictor):
    with pytest.raises((ValueError, tf.errors.OpError)):
        list(predictor.predict(numbers(1), checkpoint_path="/nowhere/model.ckpt-1"))


def test_model_fn_is_given_no_labels(trained_dir):
    MODEL_CALLS.clear()
    list(make(trained_dir, a=1).predict(numbers(1)))
    assert MODEL_CALLS == [{"mode": PREDICT, "labels": None, "params": {"a": 1}}]


def test_input_fn_is_given_the_mode(predictor):
    seen = []

    def input_fn(mode, params, config):
        seen.append((mode, params, config.model_dir))
        return numbers(1)()

    list(predictor.predict(input_fn))
    assert seen == [("infer", {}, predictor.model_dir)]


def pairs():
    return numbers(2)().map(lambda features: (features, features["x"]))


RETURNED = {
    "features": numbers(2),
    "features and labels": pairs,
    "batches": numbers(2, 2),
}


@pytest.mark.parametrize("case", RETURNED)
def test_input_fn_may_return(predictor, case):
    assert [row["x"] for row in predictor.predict(RETURNED[case])] == [0, 1]


def test_tensors_are_an_endless_input(predictor):
    generator = predictor.predict(lambda: {"x": tf.constant([0.0, 1.0])})
    assert [next(generator)["x"] for _ in range(5)] == [0, 1, 0, 1, 0]


def test_an_endless_dataset_may_be_left(predictor):
    generator = predictor.predict(forever(3))
    assert [next(generator)["x"] for _ in range(3)] == [3, 3, 3]
    generator.close()


@pytest.mark.parametrize("hooks", [["hook"], [v1.train.SessionRunHook]], ids=["text", "class"])
def test_wrong_hook_is_a_type_error(predictor, hooks):
    with pytest.raises(TypeError):
        list(predictor.predict(numbers(1), hooks=hooks))


def test_hooks_are_called_around_each_batch(predictor):
    hook = Counting()
    list(predictor.predict(numbers(3, 2), hooks=[hook]))
    assert hook.calls == ["begin", "after_run", "after_run", "end"]
    assert hook.graph


class Again(v1.train.SessionRunHook):
    """Asks for what the call itself asks for."""

    def __init__(self):
        self.seen = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(run_context.original_args.fetches)

    def after_run(self, run_context, run_values):
        self.seen += list(run_values.results["y"])


def test_a_hook_may_ask_for_the_predictions_of_the_call(predictor):
    hook = Again()
    predictions = list(predictor.predict(numbers(3, 2), hooks=[hook]))
    assert hook.seen == [prediction["y"] for prediction in predictions]


def test_hooks_of_the_spec_are_called(trained_dir):
    hook = Counting()
    HOOKS.append(hook)
    list(est.Estimator(hooked_model_fn, trained_dir).predict(numbers(3, 2)))
    assert hook.calls == ["begin", "after_run", "after_run", "end"]


HOOKS = []


def hooked_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    return est.EstimatorSpec(mode, predictions=spec.predictions, prediction_hooks=HOOKS)


def test_a_hook_may_stop_a_prediction(predictor):
    class Stopping(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            run_context.request_stop()

    assert len(list(predictor.predict(numbers(5, 2), hooks=[Stopping()]))) == 2


def test_predicting_writes_nothing(trained_dir, predictor):
    before = sorted(os.listdir(trained_dir))
    list(predictor.predict(numbers(1)))
    assert sorted(os.listdir(trained_dir)) == before


def test_an_empty_input_yields_nothing(predictor):
    assert list(predictor.predict(batches_of())) == []


def test_without_a_checkpoint_initial_values_predict(tmp_path):
    fresh = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    assert [row["y"] for row in fresh.predict(numbers(2))] == [0, 0]


def test_missing_predictions_are_a_value_error(tmp_path):
    def without(features, labels, mode):
        spec = mean_model_fn(features, labels, mode)
        return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op)

    trained = est.Estimator(without, os.fspath(tmp_path))
    trained.train(forever(), steps=1)
    with pytest.raises(ValueError, match="predictions"):
        list(trained.predict(numbers(1)))


def test_two_predictions_one_after_the_other(predictor):
    first = [row["y"] for row in predictor.predict(numbers(2))]
    assert [row["y"] for row in predictor.predict(numbers(2))] == first


@pytest.mark.only_2_15("predict is lazy")
def test_nothing_is_built_before_the_first_prediction(trained_dir):
    MODEL_CALLS.clear()
    made = make(trained_dir).predict(numbers(1))
    assert MODEL_CALLS == []
    next(made)
    assert len(MODEL_CALLS) == 1


@pytest.mark.only_here("predict is lazy")
def test_predict_checks_and_builds_when_it_is_called(trained_dir):
    MODEL_CALLS.clear()
    make(trained_dir).predict(numbers(1))
    assert len(MODEL_CALLS) == 1


def drawing_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    return spec._replace(predictions={"x": v1.random_uniform(tf.shape(features["x"]), seed=5)})


def test_each_call_draws_the_same_numbers_if_an_op_has_a_seed(tmp_path):
    model = est.Estimator(drawing_model_fn, os.fspath(tmp_path)).train(forever(), steps=1)
    first, second = ([row["x"] for row in model.predict(numbers(3))] for _ in range(2))
    assert len(set(first)) == 3
    assert first == second
