"""Every part of a Scaffold, of an EstimatorSpec and of a `scaffold_fn`, on every strategy."""

import dataclasses
import functools
import re
import tempfile

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.toy import RATE, checkpoint_steps, events, numbers

v1 = tf.compat.v1

STRATEGIES = ["no_strategy", "one_device", "mirrored_x2", "central_storage_x2"]
EVERYWHERE = pytest.mark.parametrize("strategy", STRATEGIES)
LOOPS = pytest.mark.parametrize("loop", [1, 100])
WHERE = pytest.mark.parametrize("where", ["scaffold", "scaffold_fn"])


def variable(name, **kwargs):
    """A scalar of 0 that any replica may set for all."""
    return v1.get_variable(
        name,
        [],
        initializer=v1.zeros_initializer(),
        trainable=False,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        **kwargs,
    )


def model_fn_of(make_scaffold, where="scaffold", hooks=()):
    """w -= RATE * (w - mean(features)) with a variable `start` and a local one, `seen`.

    The prediction of x is `seen`, and so is the metric's mean. `make_scaffold` takes the variables
    by name.
    """

    def model_fn(features, labels, mode):
        x = tf.cast(features, tf.float32)
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        start = variable("start")
        seen = variable("seen", collections=[v1.GraphKeys.LOCAL_VARIABLES])
        loss = tf.reduce_mean(tf.square(w - x)) / 2
        step = v1.train.get_global_step()
        train_op = v1.train.MomentumOptimizer(RATE, 0.0).minimize(loss, step)
        variables = {"w": w, "start": start, "seen": seen, "step": step}
        spec = est.EstimatorSpec if where == "scaffold" else est.tpu.TPUEstimatorSpec
        all_seen = 0 * x + seen
        is_evaluation = mode == est.ModeKeys.EVAL
        metric = {"eval_metric_ops": {"seen": v1.metrics.mean(all_seen)}} if is_evaluation else {}
        given = {"scaffold": make_scaffold(**variables), **metric} if where == "scaffold" else {}
        if where == "scaffold_fn":
            given["scaffold_fn"] = functools.partial(make_scaffold, **variables)
            given["eval_metrics"] = (lambda seen: {"seen": v1.metrics.mean(seen)}, [all_seen])
        train = mode == est.ModeKeys.TRAIN
        return spec(
            mode,
            predictions=all_seen,
            loss=loss,
            train_op=train_op,
            training_hooks=list(hooks) if train else None,
            **given,
        )

    return model_fn


def make(model_dir, strategy, loop, make_scaffold, where="scaffold", hooks=(), **config):
    run_config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop, **config)
    return est.Estimator(model_fn_of(make_scaffold, where, hooks), str(model_dir), run_config)


@dataclasses.dataclass
class Ran:
    """What was seen of a model whose Scaffold has every part."""

    trained: est.Estimator
    init_calls: list = dataclasses.field(default_factory=list)
    steps: list = dataclasses.field(default_factory=list)
    scaffolds: list = dataclasses.field(default_factory=list)


@functools.cache
def ran(strategy, loop, where):
    """Trained by 4 steps and by 2 more, with a save at each step."""
    seen = Ran(None)

    def make_scaffold(w, start, seen, step):
        first = v1.placeholder(tf.float32, [], "first_value")
        offset = v1.placeholder(tf.float32, [], "offset")
        everything = v1.global_variables_initializer()
        with tf.control_dependencies([everything]):
            init_op = tf.group(start.assign(2 * first))
        with tf.control_dependencies([v1.local_variables_initializer(), v1.tables_initializer()]):
            local_init_op = tf.group(seen.assign(start + offset))
        scaffold = v1.train.Scaffold(
            init_op=init_op,
            init_feed_dict={first: 3.5},
            init_fn=note_init,
            ready_op=v1.report_uninitialized_variables(),
            ready_for_local_init_op=v1.report_uninitialized_variables([w, start]),
            local_init_op=local_init_op,
            summary_op=v1.summary.scalar("own/start", start, collections=[]),
            saver=v1.train.Saver(max_to_keep=3),
            local_init_feed_dict={offset: 1.5},
        )
        ran_.scaffolds.append(scaffold)
        return scaffold

    def note_init(scaffold, session):
        values = session.run([v for v in v1.global_variables() if v.name == "start:0"])
        ran_.init_calls.append((scaffold, values[0]))

    ran_ = seen
    trained = make(
        tempfile.mkdtemp(),
        strategy,
        loop,
        make_scaffold,
        where,
        save_checkpoints_steps=1,
        save_summary_steps=2,
    )
    seen.trained = trained
    input_fn = numbers()
    for steps in (4, 2):
        trained.train(input_fn, steps=steps)
        seen.steps.append(checkpoint_steps(trained.model_dir))
    return seen


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
@WHERE
def test_init_op_runs_once_with_its_feed_dict_in_place_of_the_usual(strategy, loop, where):
    trained = ran(strategy, loop, where).trained
    assert trained.get_variable_value("start") == 7.0
    assert trained.get_variable_value("global_step") == 6


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
@WHERE
def test_init_fn_is_called_once_after_it_with_the_scaffold(strategy, loop, where):
    seen = ran(strategy, loop, where)
    ((scaffold, start),) = seen.init_calls
    assert start == 7.0
    assert scaffold in seen.scaffolds
    assert scaffold.saver.saver_def.max_to_keep == 3


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
@WHERE
def test_saver_says_how_many_checkpoints_stay(strategy, loop, where):
    assert ran(strategy, loop, where).steps == [[2, 3, 4], [4, 5, 6]]


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
@WHERE
def test_summary_op_takes_the_place_of_all_summaries(strategy, loop, where):
    recorded = events(ran(strategy, loop, where).trained.model_dir)
    own = [
        (step, tf.make_ndarray(v.tensor) if v.HasField("tensor") else v.simple_value)
        for step, tag, v in recorded
        if tag == "own/start"
    ]
    # Every second step, and the first call of all.
    assert own == [(1, 7.0), (2, 7.0), (4, 7.0), (6, 7.0)]


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
@WHERE
def test_local_init_op_runs_with_its_feed_dict_for_every_verb(strategy, loop, where):
    trained = ran(strategy, loop, where).trained
    for _ in range(2):  # The second evaluation finds the metrics at zero, and `seen` as it was.
        results = trained.evaluate(numbers(5, 2))
        assert results["seen"] == 8.5
        assert results["global_step"] == 6
    assert list(trained.predict(numbers(3))) == [8.5] * 3


# What a session may run: an op, what `assign` returns, and the name of either.
FORMS = {
    "op": tf.group,
    "variable": lambda assigned: assigned,
    "name": lambda assigned: tf.group(assigned).name,
}


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
@WHERE
@pytest.mark.parametrize("form", FORMS)
def test_local_init_op_runs_in_training_too_and_after_a_resume(
    tmp_path, strategy, loop, where, form
):
    values = []

    class Look(v1.train.SessionRunHook):
        def begin(self):
            (self.seen,) = (v for v in v1.local_variables() if v.name == "seen:0")

        def after_create_session(self, session, coord):
            values.append(session.run(self.seen))

    def make_scaffold(w, start, seen, step):
        return v1.train.Scaffold(local_init_op=FORMS[form](seen.assign(w + 3.0)))

    trained = make(tmp_path, strategy, loop, make_scaffold, where, hooks=[Look()])
    trained.train(numbers(start=4, batch_size=1), steps=1)
    trained.train(numbers(start=4, batch_size=1), steps=1)
    after_one = RATE * (4.5 if strategy.endswith("x2") else 4.0)
    assert values == [3.0, 3.0 + after_one]


@pytest.mark.each_value
@EVERYWHERE
@pytest.mark.parametrize(
    ("part", "loop", "where"),
    [("ready_op", 1, "scaffold_fn"), ("ready_op", 100, "scaffold")]
    + [("ready_for_local_init_op", 1, "scaffold"), ("ready_for_local_init_op", 100, "scaffold_fn")],
)
def test_a_variable_that_is_not_ready_is_named(tmp_path, strategy, loop, where, part):
    def make_scaffold(w, start, seen, step):
        given = {part: v1.report_uninitialized_variables([w, start])}
        initializers = v1.variables_initializer([w, step])
        return v1.train.Scaffold(init_op=initializers, **given)

    trained = make(tmp_path, strategy, loop, make_scaffold, where)
    with pytest.raises(RuntimeError, match=rf"`{part}` of its Scaffold names start"):
        trained.train(numbers(), steps=1)
    assert checkpoint_steps(tmp_path) == []


def test_an_init_op_that_leaves_a_variable_out_is_an_error_that_names_it(tmp_path):
    def make_scaffold(w, start, seen, step):
        return v1.train.Scaffold(init_op=v1.variables_initializer([w, step]))

    trained = make(tmp_path, "no_strategy", 1, make_scaffold)
    with pytest.raises(RuntimeError, match=r"names w/Momentum, start\.|names start, w/Momentum\."):
        trained.train(numbers(), steps=1)


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
def test_init_fn_can_restore_by_the_usual_saver(tmp_path, strategy, loop):
    def make_scaffold(w, start, seen, step):
        return v1.train.Scaffold(
            init_fn=lambda scaffold, session: scaffold.saver.restore(session, newest)
        )

    first = make(tmp_path / "a", strategy, loop, lambda **_: v1.train.Scaffold())
    first.train(numbers(start=8), steps=1)
    newest = first.latest_checkpoint()
    second = make(tmp_path / "b", strategy, loop, make_scaffold)
    second.train(numbers(start=8), max_steps=2)
    x = (8.5, 8.5) if strategy.endswith("x2") else (8.0, 8.0)
    w = RATE * x[0]
    assert second.get_variable_value("w") == np.float32(w + RATE * (x[1] - w))


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
@WHERE
@pytest.mark.parametrize("way", ["group", "list", "variable"])
def test_init_fn_can_feed_a_placeholder_of_the_model(tmp_path, strategy, loop, where, way):
    """As programs load embeddings that another program has trained."""

    def make_scaffold(w, start, seen, step):
        value = v1.placeholder(tf.float32, [])
        assigned = start.assign(2 * value)
        fetches = {"group": tf.group(assigned), "list": [assigned, w], "variable": assigned}
        fed = {value: 2.5}
        return v1.train.Scaffold(
            init_fn=lambda scaffold, session: session.run(fetches[way], feed_dict=fed)
        )

    trained = make(tmp_path, strategy, loop, make_scaffold, where)
    trained.train(numbers(), steps=3)
    assert trained.get_variable_value("start") == 5.0
    assert trained.get_variable_value("global_step") == 3


@EVERYWHERE
def test_init_fn_must_not_run_what_needs_the_batch_of_a_loop(tmp_path, strategy):
    def model_fn(features, labels, mode):
        w = variable("w")
        loss, step = tf.cast(tf.reduce_sum(features), tf.float32) + w, v1.train.get_global_step()
        scaffold = v1.train.Scaffold(init_fn=lambda scaffold, session: session.run(loss))
        return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1), scaffold=scaffold)

    config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=5)
    with pytest.raises(ValueError, match=r"^`session\.run` needs .*_per_loop=1"):
        est.Estimator(model_fn, str(tmp_path), config).train(numbers(), steps=5)


@pytest.mark.pairwise
@LOOPS
@EVERYWHERE
@pytest.mark.parametrize("has_op", [False, True])
@pytest.mark.parametrize("has_default", [False, True])
def test_variables_start_from_what_is_fed(tmp_path, strategy, loop, has_op, has_default):
    def model_fn(features, labels, mode):
        first = v1.placeholder(tf.float32, [])
        offset = v1.placeholder(tf.float32, [])
        if has_default:
            first, offset = (v1.placeholder_with_default(0.0, []) for _ in range(2))
        local = [v1.GraphKeys.LOCAL_VARIABLES]
        w = v1.get_variable("w", initializer=2 * first)
        after = v1.get_variable("after", initializer=w + offset, collections=local, trainable=False)
        metrics = {"after": v1.metrics.mean(after)}
        ops = {}
        if has_op:
            ops["init_op"] = v1.global_variables_initializer()
            ops["local_init_op"] = v1.local_variables_initializer()
        return est.EstimatorSpec(
            mode,
            predictions=0 * tf.cast(features, tf.float32) + after,
            loss=w,
            train_op=v1.train.get_global_step().assign_add(1),
            eval_metric_ops=metrics,
            scaffold=v1.train.Scaffold(
                init_feed_dict={first: 3.5}, local_init_feed_dict={offset: 1.0}, **ops
            ),
        )

    config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop)
    model = est.Estimator(model_fn, str(tmp_path), config)
    for max_steps in (1, 2):
        model.train(numbers(), max_steps=max_steps)
        assert model.get_variable_value("w") == 7
        assert model.evaluate(numbers(), steps=1)["after"] == 8
        assert next(model.predict(numbers())) == 8


@LOOPS
def test_a_sparse_placeholder_is_fed(tmp_path, loop):
    def model_fn(features, labels, mode):
        given = v1.sparse_placeholder(tf.float32, [3])
        w = v1.get_variable("w", initializer=tf.sparse.to_dense(given))
        value = v1.SparseTensorValue([[1]], [5.0], [3])
        step = v1.train.get_global_step()
        return est.EstimatorSpec(
            mode,
            loss=tf.reduce_sum(w),
            train_op=step.assign_add(1),
            scaffold=v1.train.Scaffold(init_feed_dict={given: value}),
        )

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=loop))
    model.train(numbers(), max_steps=1)
    assert model.get_variable_value("w").tolist() == [0, 5, 0]


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
def test_variables_that_start_from_one_random_tensor_are_equal(tmp_path, strategy, loop):
    def model_fn(features, labels, mode):
        value = tf.random.uniform([])
        one, other = v1.get_variable("one", initializer=value), tf.Variable(value, name="other")
        step = v1.train.get_global_step()
        return est.EstimatorSpec(mode, loss=one + other, train_op=step.assign_add(1))

    config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop)
    model = est.Estimator(model_fn, str(tmp_path), config)
    model.train(numbers(), max_steps=1)
    assert model.get_variable_value("one") == model.get_variable_value("other")


@pytest.mark.each_value
@EVERYWHERE
@pytest.mark.parametrize("restores", ["averages", "all variables", "shards"])
def test_a_saver_of_an_evaluation_omits_the_keras_metrics_before_it(tmp_path, strategy, restores):
    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        average = tf.train.ExponentialMovingAverage(0.5)
        loss = tf.reduce_mean(tf.square(w - 8))
        if mode == est.ModeKeys.TRAIN:
            step = v1.train.get_global_step()
            train_op = v1.train.GradientDescentOptimizer(0.5).minimize(loss, step)
            with tf.control_dependencies([train_op]):
                return est.EstimatorSpec(mode, loss=loss, train_op=average.apply([w]))
        metric = tf.keras.metrics.Mean("mean")
        metric.update_state(w)
        saver = {
            "averages": lambda: v1.train.Saver(average.variables_to_restore([w])),
            "all variables": lambda: v1.train.Saver({v.op.name: v for v in v1.global_variables()}),
            "shards": lambda: v1.train.Saver(sharded=True),
        }[restores]()
        scaffold = v1.train.Scaffold(saver=saver)
        return est.EstimatorSpec(mode, loss=loss, eval_metric_ops={"w": metric}, scaffold=scaffold)

    config = cases.make_config(**cases.STRATEGIES[strategy])
    model = est.Estimator(model_fn, str(tmp_path), config)
    model.train(numbers(), max_steps=1)
    for _ in range(2):
        value = 4 if restores == "averages" else 8
        assert model.evaluate(numbers(), steps=3)["w"] == value


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
def test_a_copy_of_a_scaffold_has_what_it_is_given_and_the_rest_of_the_other(
    tmp_path, strategy, loop
):
    calls = []

    def make_scaffold(w, start, seen, step):
        value = v1.placeholder(tf.float32, [])
        everything = v1.global_variables_initializer()
        with tf.control_dependencies([everything]):
            init_op = tf.group(start.assign(value))
        first = v1.train.Scaffold(
            init_op=init_op,
            init_feed_dict={value.name: 5.0},
            init_fn=lambda scaffold, session: calls.append(scaffold),
            saver=v1.train.Saver(max_to_keep=1),
        )
        copy = v1.train.Scaffold(saver=v1.train.Saver(max_to_keep=2), copy_from_scaffold=first)
        copies.append(copy)
        return copy

    copies = []
    trained = make(tmp_path, strategy, loop, make_scaffold, save_checkpoints_steps=1)
    trained.train(numbers(), steps=3)
    assert trained.get_variable_value("start") == 5.0
    assert checkpoint_steps(tmp_path) == [2, 3]
    assert calls == copies[:1]


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
def test_what_a_scaffold_lacks_is_taken_from_the_collections(tmp_path, strategy, loop):
    def make_scaffold(w, start, seen, step):
        keys = v1.GraphKeys
        if not v1.get_collection(keys.SAVERS):
            v1.add_to_collection(keys.SAVERS, v1.train.Saver(max_to_keep=2))
            v1.add_to_collection(keys.SUMMARY_OP, v1.summary.scalar("mine", w, collections=[]))
        return v1.train.Scaffold()

    trained = make(
        tmp_path, strategy, loop, make_scaffold, save_checkpoints_steps=1, save_summary_steps=2
    )
    trained.train(numbers(), steps=3)
    assert checkpoint_steps(tmp_path) == [2, 3]
    tags = {tag for _, tag, _ in events(tmp_path)}
    assert "mine" in tags


@LOOPS
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2"])
def test_summary_op_may_be_the_name_of_a_summary(tmp_path, strategy, loop):
    def make_scaffold(w, start, seen, step):
        return v1.train.Scaffold(summary_op=v1.summary.scalar("named", start + 4.0).name)

    trained = make(tmp_path, strategy, loop, make_scaffold, save_summary_steps=2)
    trained.train(numbers(), steps=4)
    named = [(step, v.simple_value) for step, tag, v in events(tmp_path) if tag == "named"]
    # Every second step, and the first call of all.
    assert named == [(step, 4.0) for step in ([1, 2, 4] if loop == 1 else [2, 4])]


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
def test_scaffold_fn_is_called_once_in_the_graph_around_the_loop(tmp_path, strategy, loop):
    graphs, is_across_replicas = [], []

    def make_scaffold(w, start, seen, step):
        graphs.append(v1.get_default_graph())
        is_across_replicas.append(tf.distribute.in_cross_replica_context())
        return v1.train.Scaffold()

    trained = make(tmp_path, strategy, loop, make_scaffold, "scaffold_fn")
    trained.train(numbers(), steps=2)
    trained.evaluate(numbers(2))
    assert next(trained.predict(numbers(2))) == 0
    assert [graph.building_function for graph in graphs] == [False, False, False]
    # An evaluation under "central_storage" has no strategy.
    expected = {"no_strategy": [False] * 3, "central_storage_x2": [True, False, False]}
    assert is_across_replicas == expected.get(strategy, [True] * 3)


@pytest.mark.each_value
@LOOPS
@EVERYWHERE
def test_a_saver_hook_that_is_made_with_a_scaffold_has_its_saver(tmp_path, strategy, loop):
    def make_scaffold(w, start, seen, step):
        scaffold = v1.train.Scaffold()
        hooks.append(est.CheckpointSaverHook(str(tmp_path), save_steps=2, scaffold=scaffold))
        return scaffold

    hooks = []
    trained = make(tmp_path, strategy, loop, make_scaffold, hooks=hooks)
    trained.train(numbers(), steps=4)
    assert checkpoint_steps(tmp_path)[-1] == 4
    assert trained.get_variable_value("global_step") == 4


@EVERYWHERE
def test_an_initializer_made_in_the_loop_does_not_run_in_the_steps(tmp_path, strategy):
    """The loop would wait for it, and each call begin with first values."""

    def make_scaffold(w, start, seen, step):
        return v1.train.Scaffold(init_op=v1.global_variables_initializer())

    trained = make(tmp_path, strategy, 2, make_scaffold)
    trained.train(numbers(), steps=6)
    assert trained.get_variable_value("global_step") == 6


@EVERYWHERE
def test_a_part_that_needs_the_batch_is_an_error_in_a_loop(tmp_path, strategy):
    def model_fn(features, labels, mode):
        w = variable("w")
        init_op = tf.group(w.assign(tf.cast(tf.reduce_sum(features), tf.float32)))
        step = v1.train.get_global_step()
        return est.EstimatorSpec(
            mode,
            loss=w + 0.0,
            train_op=step.assign_add(1),
            scaffold=v1.train.Scaffold(init_op=init_op),
        )

    config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=5)
    with pytest.raises(ValueError, match=r"`init_op` of the Scaffold.*needs .*iterations_per_loop"):
        est.Estimator(model_fn, str(tmp_path), config).train(numbers(), steps=5)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"saver": "model.ckpt"}, TypeError, "`saver` of the Scaffold ('model.ckpt') must be"),
        ({"init_feed_dict": [1]}, TypeError, "`init_feed_dict` of the Scaffold ([1]) must be"),
    ],
)
def test_a_part_of_the_wrong_type_is_an_error(tmp_path, given, error, message):
    trained = make(tmp_path, "no_strategy", 1, lambda **_: v1.train.Scaffold(**given))
    with pytest.raises(error, match=re.escape(message)):
        trained.train(numbers(), steps=1)


def test_two_savers_in_the_collection_are_an_error(tmp_path):
    def make_scaffold(**_):
        for _ in range(2):
            v1.add_to_collection(v1.GraphKeys.SAVERS, v1.train.Saver())
        return v1.train.Scaffold()

    trained = make(tmp_path, "no_strategy", 1, make_scaffold)
    with pytest.raises(ValueError, match=r"'savers' holds 2 values.*Scaffold\(saver=\.\.\.\)"):
        trained.train(numbers(), steps=1)


def test_a_scaffold_fn_that_returns_none_is_an_error(tmp_path):
    trained = make(tmp_path, "no_strategy", 1, lambda **_: None, "scaffold_fn")
    with pytest.raises(TypeError, match=r"`scaffold_fn` .* returned None"):
        trained.train(numbers(), steps=1)
