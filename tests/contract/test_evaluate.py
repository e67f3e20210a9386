"""`Estimator.evaluate`: results and their types, event files, steps, hooks, checkpoints."""

import os

import numpy as np
import pytest

from tests.contract.names import (
    batches_of,
    est,
    events,
    forever,
    mean_model_fn,
    numbers,
    scalars,
    tf,
    v1,
    weight_after,
)

W5 = weight_after(5, 1.0)
W3 = weight_after(3, 1.0)


class Recorder(v1.train.SessionRunHook):
    def __init__(self):
        self.calls = []

    def begin(self):
        self.calls.append("begin")

    def after_create_session(self, session, coord):
        self.calls.append("after_create_session")

    def before_run(self, run_context):
        self.calls.append("before_run")
        self.step = v1.train.get_global_step()
        return v1.train.SessionRunArgs(self.step)

    def after_run(self, run_context, run_values):
        self.calls.append("after_run")
        self.value = run_values.results

    def end(self, session):
        self.calls.append("end")


MODEL_CALLS, INPUT_CALLS = [], []
SPEC_HOOK = Recorder()


def model_fn(features, labels, mode, params, config):
    MODEL_CALLS.append({"mode": mode, "params": params, "labels": labels})
    spec = mean_model_fn(features, None, mode)
    x = spec.predictions["x"]
    v1.summary.scalar("mine", tf.constant(2.0))
    metrics = {
        "mean_x": v1.metrics.mean(x),
        "count": v1.metrics.true_positives(tf.ones_like(x), tf.ones_like(x)),
        "vector": v1.metrics.mean_tensor(tf.constant([1.0, 2.0])),
        "text": (tf.constant("words"), tf.no_op()),
        "whole": (tf.constant(7), tf.no_op()),
    }
    return est.EstimatorSpec(
        mode,
        loss=spec.loss,
        train_op=spec.train_op,
        eval_metric_ops=metrics,
        evaluation_hooks=[SPEC_HOOK] if params["hooked"] else [],
    )


def input_fn(mode, params):
    INPUT_CALLS.append({"mode": mode, "params": params})
    return batches_of([0, 1], [2], [3, 4, 5])()


class Evaluated:
    def __init__(self, model_dir):
        config = est.RunConfig(save_checkpoints_steps=3, keep_checkpoint_max=None)
        self.estimator = est.Estimator(model_fn, model_dir, config, {"hooked": True})
        self.estimator.train(forever(), steps=5)
        # A process that runs parts of this module at two times comes here twice.
        for calls in (MODEL_CALLS, INPUT_CALLS, SPEC_HOOK.calls):
            calls.clear()
        self.hook = Recorder()
        self.results = self.estimator.evaluate(input_fn, hooks=[self.hook])
        self.model_calls = list(MODEL_CALLS)
        self.input_calls = list(INPUT_CALLS)
        self.spec_calls = list(SPEC_HOOK.calls)
        self.plain = est.Estimator(model_fn, model_dir, config, {"hooked": False})
        self.named = self.plain.evaluate(input_fn, steps=2, name="two")
        self.old = self.plain.evaluate(
            input_fn, checkpoint_path=os.path.join(model_dir, "model.ckpt-3"), name="old"
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Evaluated(os.fspath(tmp_path_factory.mktemp("evaluated")))


def losses(w, *batches):
    return [np.mean(np.square(w - np.float32(batch))) / 2 for batch in batches]


def test_keys_of_the_results(run):
    names = {"loss", "global_step", "mean_x", "count", "vector", "text", "whole"}
    assert set(run.results) == names
    assert isinstance(run.results, dict)


def test_loss_is_the_mean_over_batches(run):
    expected = np.mean(losses(W5, [0, 1], [2], [3, 4, 5]))
    assert run.results["loss"] == pytest.approx(expected, rel=1e-6)


def test_metrics_are_over_examples(run):
    assert run.results["mean_x"] == pytest.approx(2.5)
    assert run.results["count"] == 6


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("loss", np.float32),
        ("global_step", np.int64),
        ("mean_x", np.float32),
        ("count", np.float32),
        ("whole", np.int32),
    ],
)
def test_type_of_a_result(run, name, dtype):
    assert isinstance(run.results[name], dtype)


def test_vector_metric_is_an_array(run):
    np.testing.assert_array_equal(run.results["vector"], np.float32([1, 2]))


def test_text_metric_is_bytes(run):
    assert run.results["text"] == b"words"


def test_global_step_is_that_of_the_checkpoint(run):
    assert (run.results["global_step"], run.old["global_step"]) == (5, 3)


def test_steps_limit_the_batches(run):
    assert run.named["mean_x"] == pytest.approx(1.0)
    assert run.named["loss"] == pytest.approx(np.mean(losses(W5, [0, 1], [2])), rel=1e-6)


def test_checkpoint_path_is_what_is_evaluated(run):
    expected = np.mean(losses(W3, [0, 1], [2], [3, 4, 5]))
    assert run.old["loss"] == pytest.approx(expected, rel=1e-6)


def test_order_and_count_of_callbacks(run):
    steps = ["before_run", "after_run"] * 3
    # 2.15 may call once more for the batch that is not there.
    assert run.hook.calls[:2] == ["begin", "after_create_session"]
    assert run.hook.calls[2 : 2 + len(steps)] == steps
    assert run.hook.calls[-1] == "end"


def test_hooks_of_the_spec_are_called_too(run):
    assert run.spec_calls.count("after_run") == 3
    assert (run.spec_calls[0], run.spec_calls[-1]) == ("begin", "end")


def test_graph_is_the_default_graph_in_callbacks(run):
    assert run.hook.step is not None
    assert run.hook.value == 5


@pytest.mark.parametrize(("name", "value"), [("mode", "eval"), ("labels", None)])
def test_model_fn_is_given(run, name, value):
    assert run.model_calls[0][name] == value


def test_functions_are_called_once(run):
    assert len(run.model_calls) == len(run.input_calls) == 1


@pytest.mark.parametrize(("name", "value"), [("mode", "eval"), ("params", {"hooked": True})])
def test_input_fn_is_given(run, name, value):
    assert run.input_calls[0][name] == value


@pytest.mark.parametrize("name", [None, "two", "old"])
def test_events_are_in_the_directory_of_the_name(run, name):
    step = 3 if name == "old" else 5
    assert list(scalars(run.estimator.eval_dir(name), "loss")) == [step]


@pytest.mark.parametrize("tag", ["loss", "mean_x", "count"])
def test_result_is_in_the_events(run, tag):
    recorded = scalars(run.estimator.eval_dir(), tag)
    assert recorded == {5: pytest.approx(run.results[tag])}


@pytest.mark.parametrize("tag", ["global_step", "text", "whole"])
def test_tags_beside_numbers(run, tag):
    tags = {tag for _, tag, _ in events(run.estimator.eval_dir())}
    assert (tag in tags) == (tag == "whole")


def test_path_of_the_checkpoint_is_in_the_events(run):
    found = {tag: value for _, tag, value in events(run.estimator.eval_dir("old"))}
    path = os.path.join(run.estimator.model_dir, "model.ckpt-3")
    tag = next(tag for tag in found if "checkpoint_path" in tag)
    assert found[tag].tensor.string_val[0].decode() == path


def test_summaries_of_model_fn_are_not_in_the_events(run):
    assert "mine" not in {tag for _, tag, _ in events(run.estimator.eval_dir())}


def test_evaluation_writes_no_checkpoint(run):
    assert [name for name in os.listdir(run.estimator.eval_dir()) if "ckpt" in name] == []


def test_positional_arguments(run):
    path = os.path.join(run.estimator.model_dir, "model.ckpt-3")
    results = run.plain.evaluate(input_fn, 1, None, path, "positional")
    assert (results["global_step"], results["mean_x"]) == (3, pytest.approx(0.5))
    assert os.path.isdir(run.plain.eval_dir("positional"))


@pytest.mark.parametrize("steps", [0, -1])
def test_wrong_steps_are_a_value_error(run, steps):
    with pytest.raises(ValueError, match="steps"):
        run.plain.evaluate(input_fn, steps=steps)


@pytest.mark.parametrize("hooks", [["hook"], [v1.train.SessionRunHook]], ids=["text", "class"])
def test_wrong_hook_is_a_type_error(run, hooks):
    with pytest.raises(TypeError):
        run.plain.evaluate(input_fn, hooks=hooks)


def test_missing_checkpoint_path_is_an_error(run):
    with pytest.raises((ValueError, tf.errors.OpError)):
        run.plain.evaluate(input_fn, checkpoint_path="/nowhere/model.ckpt-1")


class Stopping(v1.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        run_context.request_stop()


def test_a_hook_may_stop_an_evaluation(run):
    results = run.plain.evaluate(input_fn, hooks=[Stopping()], name="stopped")
    assert results["mean_x"] == pytest.approx(0.5)


def test_steps_may_be_more_than_there_are_batches(run):
    results = run.plain.evaluate(input_fn, steps=100, name="many")
    assert results["mean_x"] == pytest.approx(2.5)


def test_an_endless_input_is_evaluated_for_the_steps(run):
    results = run.plain.evaluate(forever(4), steps=3, name="endless")
    assert (results["mean_x"], results["count"]) == (4, 3)


def test_evaluating_again_gives_the_same(run):
    again = run.plain.evaluate(input_fn, name="again")
    assert again["loss"] == run.results["loss"]


@pytest.mark.only_2_15("an empty input")
def test_an_empty_input_evaluates_to_zero(run):
    assert run.plain.evaluate(batches_of(), name="empty")["mean_x"] == 0


@pytest.mark.only_here("an empty input")
def test_an_empty_input_is_a_value_error(run):
    with pytest.raises(ValueError, match="empty"):
        run.plain.evaluate(batches_of(), name="empty")


def losses_of_examples(features, labels, mode):
    """The model of the run, whose loss in evaluation is a vector."""
    spec = mean_model_fn(features, labels, mode)
    if mode != est.ModeKeys.EVAL:
        return spec
    loss = tf.square(spec.predictions["x"]) / 2
    return est.EstimatorSpec(mode, loss=loss, eval_metric_ops=spec.eval_metric_ops)


@pytest.mark.only_2_15("losses of examples in evaluation")
def test_a_vector_of_losses_is_an_error(tmp_path):
    with pytest.raises(tf.errors.InvalidArgumentError):
        est.Estimator(losses_of_examples, os.fspath(tmp_path)).evaluate(input_fn)


@pytest.mark.only_here("losses of examples in evaluation")
def test_a_vector_of_losses_is_averaged_over_all_examples(tmp_path):
    model = est.Estimator(losses_of_examples, os.fspath(tmp_path))
    examples = np.arange(6.0)
    assert model.evaluate(input_fn)["loss"] == pytest.approx(np.mean(examples**2) / 2, rel=1e-6)


def test_without_a_checkpoint_initial_values_are_evaluated(tmp_path):
    fresh = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    results = fresh.evaluate(numbers(3))
    assert results["global_step"] == 0
    assert results["loss"] == pytest.approx(np.mean(losses(0, [0], [1], [2])))


@pytest.mark.parametrize("path", [None, ""])
def test_without_a_checkpoint_a_warm_start_is_evaluated(tmp_path, path):
    old = os.fspath(tmp_path / "old")
    est.Estimator(mean_model_fn, old).train(forever(), steps=3)
    fresh = est.Estimator(mean_model_fn, os.fspath(tmp_path / "new"), warm_start_from=old)
    results = fresh.evaluate(numbers(1), checkpoint_path=path)
    assert results["global_step"] == 0
    assert results["loss"] == pytest.approx(W3**2 / 2)


def structure_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    mean, update = v1.metrics.mean(features["x"])
    row = tf.stack([mean, mean])
    metrics = {
        "list": ([mean, row], update),
        "dict": ({"b": {"row": row}, "a": mean}, update),
        "text": (tf.as_string(mean), update),
        "updates": (mean, {"all": [update]}),
    }
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, eval_metric_ops=metrics)


def test_a_metric_may_be_a_structure_of_different_shapes(tmp_path):
    results = est.Estimator(structure_model_fn, os.fspath(tmp_path)).evaluate(numbers(3))
    first, row = results["list"]
    assert first == results["dict"]["a"] == results["updates"] == 1
    assert row.tolist() == results["dict"]["b"]["row"].tolist() == [1, 1]
    assert results["text"] == b"1.000000"


def bad_spec_model_fn(features, labels, mode):
    return {"loss": 1.0}


def test_model_fn_that_returns_no_spec_is_a_value_error(tmp_path):
    with pytest.raises(ValueError):
        est.Estimator(bad_spec_model_fn, os.fspath(tmp_path)).evaluate(numbers(1))


def eval_only_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    metrics = {"loss": v1.metrics.mean(features["x"])}
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, eval_metric_ops=metrics)


def test_a_metric_named_loss_is_a_value_error(tmp_path):
    with pytest.raises(ValueError, match="loss"):
        est.Estimator(eval_only_model_fn, os.fspath(tmp_path)).evaluate(numbers(1))


def image_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    image = v1.summary.image("pixels", tf.zeros([1, 2, 2, 3]))
    metrics = {"picture": (image, tf.no_op())}
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, eval_metric_ops=metrics)


def test_a_metric_may_be_a_summary(tmp_path):
    trained = est.Estimator(image_model_fn, os.fspath(tmp_path))
    trained.train(forever(), steps=1)
    trained.evaluate(numbers(1))
    found = {tag for _, tag, value in events(trained.eval_dir()) if value.HasField("image")}
    assert found == {"picture/0"}


@pytest.mark.parametrize("metric", ["mean", "accuracy"])
def test_a_keras_metric_is_evaluated(tmp_path, metric):
    def keras_model_fn(features, labels, mode):
        spec = mean_model_fn(features, labels, mode)
        if metric == "mean":
            made = tf.keras.metrics.Mean()
            made.update_state(features["x"])
        else:
            made = tf.keras.metrics.BinaryAccuracy()
            made.update_state(tf.ones([4]), tf.constant([1.0, 1.0, 1.0, 0.0]))
        metrics = {"made": made}
        return est.EstimatorSpec(
            mode, loss=spec.loss, train_op=spec.train_op, eval_metric_ops=metrics
        )

    trained = est.Estimator(keras_model_fn, os.fspath(tmp_path))
    trained.train(forever(), steps=1)
    results = trained.evaluate(numbers(4, batch_size=3))
    assert results["made"] == pytest.approx(1.5 if metric == "mean" else 0.75)


def scoped_model_fn(features, labels, mode):
    """Its weight `w`, at first 0, is in a name scope that its input has, too."""
    with tf.name_scope("embed"):
        w = tf.Variable(0.0, name="w", use_resource=True)
    loss = tf.reduce_mean(tf.square(w - features["x"])) / 2
    train_op = v1.train.GradientDescentOptimizer(1.0).minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, predictions=w * features["x"], loss=loss, train_op=train_op)


def scoped_input_fn():
    features = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensors([2])).get_next()
    with tf.name_scope("embed"):
        return {"x": tf.cast(features, tf.float32)}


def test_variables_named_by_scopes_have_the_names_of_training(tmp_path):
    model = est.Estimator(scoped_model_fn, str(tmp_path))
    model.train(scoped_input_fn)
    assert model.get_variable_value("embed_1/w") == 2
    assert model.evaluate(scoped_input_fn)["loss"] == 0
    assert list(model.predict(scoped_input_fn)) == [4]


class Total(v1.train.SessionRunHook):
    """Adds up what a tensor is over all runs."""

    def __init__(self, tensor, totals):
        self.tensor, self.total, self.totals = tensor, 0.0, totals

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.tensor)

    def after_run(self, run_context, run_values):
        self.total += float(run_values.results)

    def end(self, session):
        self.totals.append(self.total)


class Shifted:
    """A model with an attribute that programs set, and with hooks made by each call."""

    shift = 0.0

    def __init__(self):
        self.modes, self.totals = [], []

    def model_fn(self, features, labels, mode):
        self.modes.append(mode)
        spec = mean_model_fn(features, labels, mode)
        shifted = tf.cast(features["x"], tf.float32) + self.shift
        hook = Total(tf.reduce_sum(shifted), self.totals)
        return spec._replace(
            predictions={"x": shifted},
            eval_metric_ops={"mean": v1.metrics.mean(shifted)},
            evaluation_hooks=[hook] if self.shift > 1 else [],
        )


def test_an_attribute_that_was_set_between_evaluations_is_read(tmp_path):
    shifted = Shifted()
    model = est.Estimator(shifted.model_fn, os.fspath(tmp_path))
    model.train(forever(), steps=1)
    means = []
    for shift in (0.0, 1.0, 0.0, 5.0):
        shifted.shift = shift
        means.append(model.evaluate(numbers(3))["mean"])
        rows = list(model.predict(numbers(3)))
        assert [row["x"] for row in rows] == [shift, shift + 1, shift + 2]
    assert means == [1.0, 2.0, 1.0, 6.0]


def test_the_hooks_of_a_spec_are_those_that_its_call_has_made(tmp_path):
    shifted = Shifted()
    shifted.shift = 2.0
    model = est.Estimator(shifted.model_fn, os.fspath(tmp_path))
    model.train(forever(), steps=1)
    for _ in range(3):
        model.evaluate(numbers(3))
    assert shifted.totals == [9.0, 9.0, 9.0]


def modes_of_two_evaluations(model_dir):
    shifted = Shifted()
    model = est.Estimator(shifted.model_fn, os.fspath(model_dir))
    model.train(forever(), steps=1)
    model.evaluate(numbers(3))
    model.evaluate(numbers(3))
    return shifted.modes


@pytest.mark.only_2_15("calls of model_fn")
def test_each_evaluation_calls_model_fn(tmp_path):
    assert modes_of_two_evaluations(tmp_path) == ["train", "eval", "eval"]


@pytest.mark.only_here("calls of model_fn")
def test_an_evaluation_calls_model_fn_only_if_it_would_make_something_else(tmp_path):
    assert modes_of_two_evaluations(tmp_path) == ["train", "eval"]


def test_calls_in_the_scope_of_a_strategy_do_what_they_do_elsewhere(tmp_path):
    model = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model.train(forever(), steps=3)
        results = model.evaluate(numbers(3))
        rows = list(model.predict(numbers(3)))
    assert results["mean_x"] == 1
    w = weight_after(3, 1.0)
    assert [row["y"] for row in rows] == pytest.approx([0, w, 2 * w], abs=1e-6)
