"""Summaries of any kind, in a loop of any size: right tags, exact steps, once."""

import collections
import os

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import events, numbers

v1 = tf.compat.v1

LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 100])
STRATEGIES = pytest.mark.parametrize("strategy", [None, "mirrored"])


def spec_of(mode, x, **kwargs):
    """A step that only counts; its loss is the batch."""
    train_op = v1.train.get_or_create_global_step().assign_add(1)
    return est.tpu.TPUEstimatorSpec(mode, loss=x, train_op=train_op, **kwargs)


def train(model_fn, model_dir, iterations_per_loop, steps=10, strategy=None, **config):
    config = est.RunConfig(
        **{"save_summary_steps": 3, "log_step_count_steps": None, **config},
        iterations_per_loop=iterations_per_loop,
        strategy=strategy,
        num_replicas=2 if strategy else None,
    )
    trained = est.Estimator(model_fn, str(model_dir), config)
    trained.train(numbers(), steps=steps)
    return trained


def recorded_steps(iterations_per_loop, last=9):
    """Every third step; and the first session call records its last step."""
    return [*([1] if iterations_per_loop == 1 else []), *range(3, last + 1, 3)]


def first(features):
    return tf.cast(features[0], tf.float32)


@LOOPS
def test_a_step_that_two_optimizers_count_is_recorded(tmp_path, iterations_per_loop):
    """As of a generator and its critic, which both take the global step: no call plans a 4."""

    def model_fn(features, mode):
        v1.summary.scalar("x", first(features))
        spec = spec_of(mode, first(features))
        step = v1.train.get_global_step()
        return spec._replace(train_op=tf.group(spec.train_op, step.assign_add(1)))

    trained = train(model_fn, tmp_path, iterations_per_loop, steps=20, save_summary_steps=4)
    steps = [step for step, tag, _ in events(trained.model_dir) if tag == "x"]
    assert steps == ([2, 6, 10, 14, 18] if iterations_per_loop == 1 else [8, 16, 24])


@LOOPS
@STRATEGIES
def test_v1_summaries_have_their_tags_at_exactly_their_steps_once(
    tmp_path, iterations_per_loop, strategy
):
    def model_fn(features, mode):
        x = first(features)
        v1.summary.scalar("x", x)
        v1.summary.histogram("spread", tf.stack([x, x + 1, x + 2]))
        v1.summary.image("picture", tf.ones([1, 2, 2, 3]) * 0.5, max_outputs=1)
        with tf.name_scope("inner"):
            v1.summary.scalar("double", 2 * x)
        return spec_of(mode, x)

    trained = train(model_fn, tmp_path, iterations_per_loop, strategy=strategy)
    written = events(trained.model_dir)
    found = collections.Counter((step, tag) for step, tag, _ in written)
    tags = ["x", "spread", "picture/image/0", "inner/double", "loss"]
    tags[2] = "picture/image"  # With one image, TensorFlow leaves out the number.
    steps = recorded_steps(iterations_per_loop)
    assert found == {(step, tag): 1 for step in steps for tag in tags}
    # Step 3 has the third batch of the first replica: 2, or 4 when two take turns.
    scale = 2 if strategy else 1
    values = {(step, tag): value for step, tag, value in written}
    assert [values[step, "x"].simple_value for step in (3, 6, 9)] == [
        2 * scale,
        5 * scale,
        8 * scale,
    ]
    assert values[6, "inner/double"].simple_value == 10 * scale
    assert values[9, "spread"].histo.num == 3
    assert values[9, "spread"].histo.min == 8 * scale
    assert values[3, "picture/image"].image.width == 2


@pytest.mark.pairwise
@LOOPS
@pytest.mark.parametrize("has_another", [False, True])
def test_a_summary_inside_a_loop_of_the_model_is_left_out_with_a_warning(
    tmp_path, iterations_per_loop, has_another, control_flow, caplog
):
    def model_fn(features, mode):
        def double(x):
            v1.summary.scalar("inside", x)
            return 2 * x

        x = tf.map_fn(double, tf.cast(features, tf.float32))[0]
        if has_another:
            v1.summary.scalar("outside", x)
        return spec_of(mode, x)

    trained = train(model_fn, tmp_path, iterations_per_loop, steps=3)
    tags = {"loss", "outside"} if has_another else {"loss"}
    assert {tag for _, tag, _ in events(trained.model_dir)} == tags
    [warning] = [r.getMessage() for r in caplog.records if "inside a loop" in r.getMessage()]
    assert "inside']" in warning
    assert "summarize it outside" in warning


@LOOPS
@STRATEGIES
def test_summaries_are_computed_only_when_they_are_due(tmp_path, iterations_per_loop, strategy):
    computed = []

    def note(x):
        computed.append(float(x))
        return x

    def model_fn(features, mode):
        x = first(features)
        v1.summary.scalar("x", tf.numpy_function(note, [x], tf.float32, stateful=False))
        return spec_of(mode, x)

    trained = train(model_fn, tmp_path, iterations_per_loop, strategy=strategy)
    written = [value.simple_value for _, tag, value in events(trained.model_dir) if tag == "x"]
    scale = 2 if strategy else 1
    assert written == [(step - 1) * scale for step in recorded_steps(iterations_per_loop)]
    assert computed == written


def zero(name):
    return v1.get_variable(name, [], initializer=v1.zeros_initializer(), trainable=False)


@LOOPS
def test_what_only_a_summary_updates_is_updated_when_it_is_recorded(tmp_path, iterations_per_loop):
    def model_fn(features, mode):
        x = first(features)
        _, update = v1.metrics.mean(x)
        v1.summary.scalar("average", update)
        every, waited_for, called = zero("every"), zero("waited_for"), zero("called")
        with tf.control_dependencies([waited_for.assign_add(1.0)]):
            v1.summary.scalar("x", x)
        v1.summary.scalar("call", tf.function(lambda: called.assign_add(1.0))())
        counted = every.assign_add(1.0)
        v1.summary.scalar("steps", counted)
        with tf.control_dependencies([counted]):
            return spec_of(mode, tf.identity(x))

    trained = train(model_fn, tmp_path, iterations_per_loop)
    steps = recorded_steps(iterations_per_loop)
    assert trained.get_variable_value("waited_for") == len(steps)
    assert trained.get_variable_value("called") == len(steps)
    assert trained.get_variable_value("every") == 10
    found = {(step, tag): value.simple_value for step, tag, value in events(trained.model_dir)}
    assert [found[step, "steps"] for step in steps] == steps
    assert [found[step, "call"] for step in steps] == [*range(1, len(steps) + 1)]
    means = [np.mean(np.array(steps[: i + 1]) - 1) for i in range(len(steps))]
    assert [found[step, "average"] for step in steps] == pytest.approx(means)


@LOOPS
def test_what_a_summary_updates_is_not_updated_at_the_end_of_the_input(
    tmp_path, iterations_per_loop
):
    def model_fn(features, mode):
        v1.summary.scalar("counted", zero("count").assign_add(1.0))
        return spec_of(mode, first(features))

    config = est.RunConfig(save_summary_steps=1, iterations_per_loop=iterations_per_loop)
    trained = est.Estimator(model_fn, str(tmp_path), config)
    trained.train(numbers(5))
    assert trained.get_variable_value("count") == 5


@pytest.mark.parametrize("loop", [1, 4])
def test_what_a_logged_tensor_updates_is_updated_once_where_a_summary_shows_it_too(tmp_path, loop):
    def model_fn(features, mode):
        counted = zero("logged").assign_add(1.0)
        v1.summary.scalar("counted", counted)
        hook = v1.train.LoggingTensorHook({"counted": counted}, every_n_iter=1)
        return spec_of(mode, first(features), training_hooks=[hook])

    trained = train(model_fn, tmp_path, loop, steps=8, save_summary_steps=4)
    assert trained.get_variable_value("logged") == 8 / loop
    found = [value.simple_value for _, tag, value in events(trained.model_dir) if tag == "counted"]
    assert found == ([1, 4, 8] if loop == 1 else [1, 2])


def test_in_a_loop_the_summary_lives_in_a_branch_that_only_the_last_step_takes(tmp_path):
    graphs = []

    def model_fn(features, mode):
        x = first(features)
        v1.summary.histogram("spread", tf.exp(tf.stack([x, x]), name="only_for_the_summary"))
        graphs.append(v1.get_default_graph())
        return spec_of(mode, x)

    train(model_fn, tmp_path, 100)
    (body,) = graphs
    stack, run = [output.op for output in body.outputs], set()
    while stack:
        op = stack.pop()
        if op not in run:
            run.add(op)
            stack += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    made = {op.type for op in body.get_operations()}
    assert {"Exp", "HistogramSummary"} <= made  # Where `model_fn` made them.
    assert {"Exp", "HistogramSummary"}.isdisjoint(op.type for op in run)
    branches = [op.get_attr("then_branch").name for op in run if op.type == "If"]
    functions = {f.signature.name: f for f in body.as_graph_def().library.function}
    made_in = [{node.op for node in functions[branch].node_def} for branch in branches]
    (in_branch,) = [ops for ops in made_in if "HistogramSummary" in ops]
    assert {"Exp", "HistogramSummary", "AssignVariableOp"} <= in_branch


@LOOPS
def test_a_summary_of_a_variable_sees_it_before_the_step_that_it_belongs_to(
    tmp_path, iterations_per_loop
):
    """What is read before the `train_op` is made is read before it runs."""

    def model_fn(features, mode):
        step = v1.train.get_global_step()
        v1.summary.scalar("steps_before", step.read_value())
        return spec_of(mode, first(features))

    trained = train(model_fn, tmp_path, iterations_per_loop, steps=30)
    written = [(s, v.simple_value) for s, t, v in events(trained.model_dir) if t == "steps_before"]
    assert written == [(s, s - 1) for s in recorded_steps(iterations_per_loop, 30)]


@LOOPS
def test_a_run_without_due_summaries_computes_none(tmp_path, iterations_per_loop):
    computed = []

    def model_fn(features, mode):
        x = first(features)
        noted = tf.numpy_function(
            lambda x: computed.append(x) or x, [x], tf.float32, stateful=False
        )
        v1.summary.scalar("x", noted)
        return spec_of(mode, x)

    trained = train(model_fn, tmp_path, iterations_per_loop, save_summary_steps=None)
    assert computed == []
    assert events(trained.model_dir) == []


def written_by_host(batches):
    """A host_fn that appends the arrays it is called with to `batches`."""

    def host_fn(**tensors):
        def note(*arrays):
            batches.append(
                {key: a.tolist() for key, a in zip(sorted(tensors), arrays, strict=True)}
            )

        return v1.py_func(note, [tensors[key] for key in sorted(tensors)], [])

    return host_fn


@pytest.mark.pairwise
@LOOPS
@STRATEGIES
@pytest.mark.parametrize("form", ["dict", "list"])
def test_host_call_runs_every_step_with_the_tensors_of_all_replicas(
    tmp_path, iterations_per_loop, strategy, form
):
    batches = []

    def model_fn(features, mode):
        step = tf.reshape(v1.train.get_global_step(), [1])
        tensors = {"features": features, "step": step}
        if form == "dict":
            return spec_of(mode, first(features), host_call=(written_by_host(batches), tensors))

        def host_fn(features, step):
            return written_by_host(batches)(features=features, step=step)

        return spec_of(mode, first(features), host_call=(host_fn, [features, step]))

    train(model_fn, tmp_path, iterations_per_loop, steps=5, strategy=strategy)
    if strategy:
        expected = [{"features": [2 * i, 2 * i + 1], "step": [i, i]} for i in range(5)]
    else:
        expected = [{"features": [i], "step": [i]} for i in range(5)]
    assert batches == expected


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_host_call_writes_tf_summaries_of_each_step(tmp_path, iterations_per_loop, strategy):
    """The host_call of the TPU examples: a writer made in it, `all_v2_summary_ops` returned."""

    def host_fn(step, x):
        writer = tf.summary.create_file_writer(str(tmp_path / "host"), max_queue=1000)
        with writer.as_default(step=step[0]), tf.summary.record_if(True):
            tf.summary.scalar("x", tf.reduce_sum(x))
            tf.summary.histogram("spread", x)
        return v1.summary.all_v2_summary_ops()

    def model_fn(features, mode):
        step = tf.reshape(v1.train.get_global_step(), [1])
        x = tf.cast(features, tf.float32)
        return spec_of(mode, x[0], host_call=(host_fn, [step, x]))

    train(model_fn, tmp_path, iterations_per_loop, steps=7, strategy=strategy)
    written = events(str(tmp_path / "host"))
    xs = [(step, float(tf.make_ndarray(v.tensor))) for step, tag, v in written if tag == "x"]
    sums = [4 * i + 1 for i in range(7)] if strategy else range(7)
    assert xs == list(enumerate(sums))
    assert [step for step, tag, _ in written if tag == "spread"] == list(range(7))


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_tf_summary_in_model_fn_writes_when_summaries_are_due(
    tmp_path, iterations_per_loop, strategy
):
    def model_fn(features, mode):
        x = first(features)
        writer = tf.summary.create_file_writer(str(tmp_path / "own"))
        with writer.as_default(step=v1.train.get_global_step()):
            tf.summary.scalar("x", x)
            tf.summary.histogram("spread", tf.stack([x, x]))
            tf.summary.image("picture", tf.zeros([1, 2, 2, 3]))
        return spec_of(mode, x)

    train(model_fn, tmp_path, iterations_per_loop, strategy=strategy)
    written = events(str(tmp_path / "own"))
    found = [(step, tag) for step, tag, _ in written]
    # The step that the model names is the one before its `train_op`.
    steps = [step - 1 for step in recorded_steps(iterations_per_loop)]
    assert sorted(found) == [(s, t) for s in steps for t in ("picture", "spread", "x")]
    xs = [float(tf.make_ndarray(v.tensor)) for _, tag, v in written if tag == "x"]
    assert xs == [step * (2 if strategy else 1) for step in steps]


@pytest.mark.each_value
@LOOPS
@STRATEGIES
@pytest.mark.parametrize("is_host_call", [True, False])
def test_tf_summary_in_the_train_op_writes_in_each_step(
    tmp_path, iterations_per_loop, strategy, is_host_call
):
    def write(x):
        writer = tf.summary.create_file_writer(str(tmp_path / "own"))
        with writer.as_default(step=v1.train.get_global_step()):
            tf.summary.scalar("x", x[0])
        return v1.summary.all_v2_summary_ops()

    def model_fn(features, mode):
        x = tf.reshape(first(features), [1])
        if is_host_call:
            host_call = (write, [x])
            return spec_of(mode, x[0], host_call=host_call).as_estimator_spec()
        writes = write(x)
        spec = spec_of(mode, x[0])
        with tf.control_dependencies([spec.train_op]):
            return spec._replace(train_op=tf.group(*writes))

    train(model_fn, tmp_path, iterations_per_loop, steps=7, strategy=strategy)
    assert len([tag for _, tag, _ in events(str(tmp_path / "own")) if tag == "x"]) == 7


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("kind", ["cond", "while"])
def test_tf_summary_may_be_in_a_branch_or_a_loop_of_the_model(tmp_path, iterations_per_loop, kind):
    def model_fn(features, mode):
        x = first(features)
        writer = tf.summary.create_file_writer(str(tmp_path / "own"))
        with writer.as_default(step=v1.train.get_global_step()), tf.summary.record_if(True):
            if kind == "cond":
                op = tf.cond(x > -1, lambda: tf.summary.scalar("x", x), lambda: False)
            else:
                body = lambda i: (tf.summary.scalar("x", x), i + 1)[1]  # noqa: E731
                op = tf.while_loop(lambda i: i < 1, body, [0])
        spec = spec_of(mode, x)
        return spec.replace(train_op=tf.group(spec.train_op, op))

    train(model_fn, tmp_path, iterations_per_loop, steps=7)
    written = [tag for _, tag, _ in events(str(tmp_path / "own")) if tag == "x"]
    # Nothing in the loop's body waits for the summary, so that TensorFlow may leave it out.
    assert len(written) == 7 or kind == "while"


@LOOPS
def test_a_record_if_in_model_fn_decides_by_itself(tmp_path, iterations_per_loop):
    def model_fn(features, mode):
        step = v1.train.get_global_step()
        writer = tf.summary.create_file_writer(str(tmp_path / "own"))
        with writer.as_default(step=step), tf.summary.record_if(lambda: tf.equal(step % 4, 0)):
            tf.summary.scalar("x", first(features))
        return spec_of(mode, first(features))

    train(model_fn, tmp_path, iterations_per_loop)
    assert [step for step, _, _ in events(str(tmp_path / "own"))] == [0, 4, 8]


def test_evaluation_metrics_are_written_at_the_step_that_was_evaluated(tmp_path):
    def model_fn(features, mode):
        x = tf.cast(features, tf.float32)
        picture = v1.summary.image("picture", tf.zeros([1, 2, 2, 3]))
        metrics = {
            "mean": v1.metrics.mean(x),
            "spread": (tf.constant([1.0, 2.0, np.nan]), tf.no_op()),
            "grid": (picture, tf.no_op()),
            "none": (tf.zeros([0]), tf.no_op()),
        }
        step = v1.train.get_or_create_global_step().assign_add(1)
        return est.EstimatorSpec(
            mode, loss=tf.reduce_sum(x), train_op=step, eval_metric_ops=metrics
        )

    trained = est.Estimator(model_fn, str(tmp_path))
    trained.train(numbers(), steps=4)
    trained.evaluate(numbers(3))
    trained.evaluate(numbers(3), name="other")
    for directory in (trained.eval_dir(), trained.eval_dir("other")):
        written = events(directory)
        assert {step for step, _, _ in written} == {4}
        tags = sorted(tag for _, tag, _ in written)
        # As tf.estimator has them.
        assert tags == ["checkpoint_path", "grid/0", "loss", "mean", "spread"]
        values = {tag: value for _, tag, value in written}
        path = tf.make_ndarray(values["checkpoint_path"].tensor).item()
        assert path == trained.latest_checkpoint().encode()
        assert values["mean"].simple_value == 1
        assert values["spread"].histo.num == 2  # Those that are finite.
    assert os.path.basename(trained.eval_dir("other")) == "eval_other"


def test_two_writers_of_one_second_do_not_overwrite_each_other(tmp_path):
    def model_fn(features, mode):
        return spec_of(mode, first(features))

    for _ in range(3):
        train(model_fn, tmp_path, 1, steps=3, save_summary_steps=1).close()
    written = events(str(tmp_path))
    assert [step for step, tag, _ in written if tag == "loss"] == list(range(1, 10))
