"""What a program's own hooks may do: end a call, assign to variables, ask for traces and values."""

import collections
import os
from unittest import mock

import numpy as np
import pytest

from tests.contract.names import (
    IS_2_15,
    checkpoint_steps,
    est,
    forever,
    mean_model_fn,
    tf,
    v1,
    weight_after,
)


@pytest.fixture
def model(tmp_path):
    return est.Estimator(mean_model_fn, os.fspath(tmp_path))


def step_of(model):
    return int(model.get_variable_value("global_step"))


class Recorder(est.SessionRunHook):
    """Counts its calls; `before` and `after` are called around each session call."""

    def __init__(self, before=lambda context: None, after=lambda values: None):
        self.before, self.after = before, after
        self.num_calls = self.num_ends = 0

    def before_run(self, run_context):
        self.num_calls += 1
        return self.before(run_context)

    def after_run(self, run_context, run_values):
        del run_context
        self.after(run_values)

    def end(self, session):
        del session
        self.num_ends += 1


# --- A hook that ends the call by an exception ---------------------------------------------------

ENDS = [StopIteration(), tf.errors.OutOfRangeError(None, None, "ended")]


def ending(error, place):
    """A hook that has something for two session calls, and fails in the third."""

    def fail(_):
        if hook.num_calls == 3:
            raise error

    hook = Recorder(**{place: fail})
    return hook


@pytest.mark.parametrize("error", ENDS, ids=["StopIteration", "OutOfRangeError"])
@pytest.mark.parametrize(("place", "steps"), [("before", 2), ("after", 3)])
def test_the_end_of_a_hooks_own_input_ends_training(model, error, place, steps):
    hook = ending(error, place)
    model.train(forever(2.0), hooks=[hook], steps=9)
    assert step_of(model) == steps
    assert hook.num_ends == 1


@pytest.mark.parametrize("error", ENDS, ids=["StopIteration", "OutOfRangeError"])
def test_the_end_of_a_hooks_own_input_ends_evaluation_and_prediction(model, error):
    model.train(forever(2.0), steps=1)
    hook = ending(error, "before")
    assert model.evaluate(forever(2.0), hooks=[hook])["mean_x"] == 2
    assert (hook.num_calls, hook.num_ends) == (3, 1)
    hook = ending(error, "before")
    assert len(list(model.predict(forever(2.0), hooks=[hook]))) == 2
    assert (hook.num_calls, hook.num_ends) == (3, 1)


def test_a_feed_hook_ends_the_training_with_its_source(tmp_path):
    def model_fn(features, labels, mode):
        rate = v1.placeholder_with_default(0.0, [])
        w = v1.get_variable("w", initializer=0.0)
        count = v1.assign_add(v1.train.get_global_step(), 1)
        train_op = tf.group(v1.assign_add(w, rate), count)
        rates = iter([1.0, 2.0, 4.0])
        hook = est.FeedFnHook(lambda: {rate: next(rates)})
        return est.EstimatorSpec(mode, loss=w, train_op=train_op, training_hooks=[hook])

    model = est.Estimator(model_fn, os.fspath(tmp_path))
    model.train(forever(), steps=10)
    assert (step_of(model), model.get_variable_value("w")) == (3, 7)


# --- A hook that assigns to variables ------------------------------------------------------------


class Load(est.SessionRunHook):
    """Gives the weight another value, as an average of weights would be."""

    def __init__(self, value):
        self.value = value

    def after_create_session(self, session, coord):
        del coord
        (weight,) = v1.global_variables("w")
        weight.load(self.value, session)


def test_what_a_hook_assigns_is_gone_in_the_next_call(model):
    def predicted(**hooks):
        return next(model.predict(forever(1.0), **hooks))["y"]

    model.train(forever(2.0), steps=2)
    trained = weight_after(2, 2.0)
    assert predicted(hooks=[Load(5.0)]) == 5
    assert predicted() == pytest.approx(trained)
    loss = model.evaluate(forever(2.0), steps=1)["loss"]
    assert model.evaluate(forever(2.0), steps=1, hooks=[Load(2.0)])["loss"] == 0
    assert model.evaluate(forever(2.0), steps=1)["loss"] == loss > 0


# --- What a hook asks for ------------------------------------------------------------------------


def test_the_highest_trace_level_and_timeout_of_all_hooks_count(model):
    def asking(**options):
        asked = v1.RunOptions(**options)
        return Recorder(before=lambda _: est.SessionRunArgs(None, options=asked))

    found = []
    hooks = [
        asking(trace_level=v1.RunOptions.FULL_TRACE, timeout_in_ms=50_000),
        asking(trace_level=v1.RunOptions.SOFTWARE_TRACE, timeout_in_ms=60_000),
        asking(timeout_in_ms=40_000),
        Recorder(after=lambda values: found.append(values.options)),
    ]
    model.train(forever(), hooks=hooks, steps=1)
    assert [(o.trace_level, o.timeout_in_ms) for o in found] == [(3, 60_000)]


def test_results_have_the_type_of_the_fetches(model):
    found = []

    def ask(_):
        step = v1.train.get_global_step()
        fetches = collections.OrderedDict(b=step, a=collections.defaultdict(list, c=step))
        return est.SessionRunArgs(fetches)

    hook = Recorder(ask, lambda values: found.append(values.results))
    model.train(forever(), hooks=[hook], steps=1)
    (results,) = found
    assert type(results) is collections.OrderedDict
    assert list(results) == ["b", "a"]
    assert results["a"]["missing"] == []


# --- A variable of TensorFlow 1 ------------------------------------------------------------------


@pytest.mark.usefixtures("without_resource_variables")
def test_a_variable_is_fetched_as_the_step_leaves_it(model):
    found = []
    hook = Recorder(
        lambda context: est.SessionRunArgs(
            [v1.global_variables("w")[0], v1.train.get_global_step()]
        ),
        lambda values: found.append(values.results),
    )
    model.train(forever(2.0), hooks=[hook], steps=3)
    assert [int(step) for _, step in found] == [1, 2, 3]
    assert [w for w, _ in found] == pytest.approx([weight_after(step, 2.0) for step in (1, 2, 3)])


@pytest.mark.usefixtures("without_resource_variables")
def test_a_hook_stops_at_the_step_that_it_fetches(model):
    class Stop(est.SessionRunHook):
        def begin(self):
            self.step = v1.train.get_global_step()

        def before_run(self, run_context):
            return est.SessionRunArgs(self.step)

        def after_run(self, run_context, run_values):
            if run_values.results >= 3:
                run_context.request_stop()

    model.train(forever(2.0), hooks=[Stop()], steps=9)
    assert step_of(model) == 3


class OfHandle(est.SessionRunHook):
    """Runs "w:0", as a tensor that `begin` finds, in calls of its own."""

    def __init__(self):
        self.found = []

    def begin(self):
        self.tensor = v1.get_default_graph().get_tensor_by_name("w:0")
        self.final = v1.train.FinalOpsHook({"final": [self.tensor]})

    def after_run(self, run_context, run_values):
        self.found.append(run_context.session.run(self.tensor))

    def end(self, session):
        self.final.end(session)
        self.found += [session.run({"w": self.tensor})["w"], *self.final.final_ops_values["final"]]


@pytest.mark.usefixtures("without_resource_variables")
def test_a_variable_is_run_by_the_tensor_of_its_name(model):
    hook = OfHandle()
    model.train(forever(2.0), hooks=[hook], steps=3)
    assert hook.found == pytest.approx([weight_after(step, 2.0) for step in (1, 2, 3, 3, 3)])
    hook = OfHandle()
    model.evaluate(forever(2.0), hooks=[hook], steps=2)
    assert hook.found == pytest.approx([weight_after(3, 2.0)] * 4)


class Saves(est.CheckpointSaverListener):
    """Runs "w:0" and what v1 reads it with, around each save."""

    def __init__(self):
        self.found = []

    def before_save(self, session, global_step_value):
        self.found.append(session.run("w:0"))

    def after_save(self, session, global_step_value):
        tensor = v1.get_default_graph().get_tensor_by_name("w:0")
        self.found += session.run(["w/read:0", tensor])


@pytest.mark.usefixtures("without_resource_variables")
@pytest.mark.parametrize("hooks", [[], [est.SessionRunHook()]], ids=["alone", "beside_a_hook"])
def test_a_listener_finds_the_values_that_are_saved(model, hooks):
    listener = Saves()
    model.train(forever(2.0), hooks=hooks, steps=2, saving_listeners=[listener])
    assert listener.found == pytest.approx([0] * 3 + [weight_after(2, 2.0)] * 3)


@pytest.mark.usefixtures("without_resource_variables")
def test_an_init_fn_finds_values_by_name(tmp_path):
    found = []

    def model_fn(features, labels, mode):
        spec = mean_model_fn(features, labels, mode)
        scaffold = v1.train.Scaffold(init_fn=lambda _, session: found.append(session.run("w:0")))
        return spec._replace(scaffold=scaffold)

    est.Estimator(model_fn, os.fspath(tmp_path)).train(forever(2.0), steps=1)
    assert found == [0]


@pytest.mark.usefixtures("without_resource_variables")
def test_a_logging_hook_shows_a_variable_by_name_at_the_end(model):
    shown = []
    hook = est.LoggingTensorHook(["w"], at_end=True, formatter=shown.append)
    model.train(forever(2.0), hooks=[hook], steps=3)
    assert shown == [{"w": pytest.approx(weight_after(3, 2.0))}]


# --- What a hook runs between steps ---------------------------------------------------------------


class Runs(est.SessionRunHook):
    """Runs `fetches` by themselves, after each session call and at the end."""

    def __init__(self, fetches):
        self.fetches, self.found = fetches, []

    def after_run(self, run_context, run_values):
        self.found.append(run_context.session.run(self.fetches))

    def end(self, session):
        self.found.append(session.run(self.fetches))


def trained_with(path, make_fetches, loop, make_hook=Runs):
    """Trains a Keras layer for 4 steps; returns the model, and a hook that ran what was made."""
    hooks = []

    def model_fn(features, labels, mode):
        del labels
        layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        loss = tf.reduce_mean((layer(features) - 1) ** 2)
        count = v1.train.get_global_step()
        train_op = v1.train.GradientDescentOptimizer(0.25).minimize(loss, count)
        fetches = make_fetches(layer, count)
        hooks[:] = [make_hook(fetches)]
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)

    config = est.RunConfig(**({} if IS_2_15 else {"iterations_per_loop": loop}))
    model = est.Estimator(model_fn, os.fspath(path), config)
    model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]).repeat(), steps=4)
    assert step_of(model) == 4
    return model, hooks[0]


LOOPS = [1] if IS_2_15 else [1, 2]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_hook_validates_between_steps(tmp_path, loop):
    """With ops that were made after the `train_op`, and read what it assigns."""
    _, runs = trained_with(
        tmp_path, lambda layer, count: [layer(tf.constant([[2.0]])), count + 0], loop
    )
    steps = [*range(loop, 5, loop), 4]
    assert [int(step) for _, step in runs.found] == steps
    found = [float(value[0, 0]) for value, _ in runs.found]
    assert found == pytest.approx([2 - 2 * 0.5**step for step in steps])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_hook_feeds_and_fetches_parts_of_what_it_runs_between_steps(tmp_path, loop):
    """Tensors of any kind, by object and by name; no batch is taken, and the graph stays."""
    found, sizes = [], []

    def make_fetches(layer, count):
        x = tf.constant([[2.0]])
        hidden = layer(x)
        result = {
            "output": hidden * 10.0,
            "sparse": tf.SparseTensor([[0]], hidden[0], [1]),
            "slices": tf.IndexedSlices(hidden[0], tf.constant([0])),
            "ragged": tf.RaggedTensor.from_row_lengths(hidden[0], [1]),
        }
        return x, hidden, result

    class Feeds(Runs):
        def after_run(self, run_context, run_values):
            x, hidden, result = self.fetches
            run = run_context.session.run
            keys = [x, hidden] if loop > 1 else [x, hidden, x.name, hidden.name]
            for key in keys:
                found.append(run(result["output"], {key: [[7.0]]}))
            nested = {(x, (hidden,)): (np.array([[5.0]]), (np.array([[7.0]]),))}
            assert run(result["output"], nested) == pytest.approx(70)
            self.found.append(run(result))
            for name in result:
                run([result[name], result["output"]])
            sizes.append(len(hidden.graph.get_operations()))

        def end(self, session):
            pass

    _, runs = trained_with(tmp_path, make_fetches, loop, Feeds)
    weights = [1 - 0.5**step for step in range(loop, 5, loop)]
    expected = [[70.0 * w, 70.0] * (1 if loop > 1 else 2) for w in weights]
    assert np.ravel(found) == pytest.approx(np.ravel(expected))
    for w, values in zip(weights, runs.found, strict=True):
        assert values["output"] == pytest.approx(20 * w)
        assert [values["sparse"].values, values["slices"].values] == [pytest.approx(2 * w)] * 2
        assert values["ragged"].values == pytest.approx(2 * w)
    assert sizes == sizes[:1] * len(sizes)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_hook_resets_between_steps_what_each_step_counts(tmp_path, loop):
    """An assignment to a variable of a layer, which was made after that of the `train_op`."""

    def make_fetches(layer, count):
        return [layer.kernel.assign([[0.0]]).op, count + 0]

    model, runs = trained_with(tmp_path, make_fetches, loop)
    assert [int(step) for _, step in runs.found] == [*range(loop, 5, loop), 4]
    (name,) = (name for name in model.get_variable_names() if "kernel" in name)
    assert model.get_variable_value(name) == 0


# --- A training inside a training ----------------------------------------------------------------


def trained_by_a_hook(model):
    """Has the hook of a training train the same model."""
    other = est.Estimator(mean_model_fn, model.model_dir)
    hook = Recorder(lambda context: other.train(forever(2.0), steps=1) and None)
    return model.train(forever(2.0), hooks=[hook], steps=1)


@pytest.mark.only_2_15("a training inside a training")
def test_a_hook_trains_in_the_same_directory(model):
    trained_by_a_hook(model)
    assert step_of(model) == 1


@pytest.mark.only_here("a training inside a training")
def test_a_hook_cannot_train_in_the_same_directory(model):
    with pytest.raises(RuntimeError, match="is being trained in by this process already"):
        trained_by_a_hook(model)


# --- Hooks that are no instances of a class with the methods --------------------------------------


def test_a_method_that_is_an_attribute_of_the_hook_may_set_the_step(tmp_path):
    options = {} if IS_2_15 else {"iterations_per_loop": 4}
    config = est.RunConfig(os.fspath(tmp_path), **options)
    model, hook = est.Estimator(mean_model_fn, config=config), est.SessionRunHook()

    def begin():
        hook.assigning = v1.assign(v1.train.get_global_step(), 10)

    hook.begin = begin
    hook.after_create_session = lambda session, coordinator: session.run(hook.assigning)
    model.train(forever(2.0), hooks=[hook], max_steps=13)
    assert step_of(model) == 13
    assert model.get_variable_value("w") == pytest.approx(weight_after(3, 2.0))


METHODS = ["begin", "after_create_session", "before_run", "after_run", "end"]


class Proxy:
    """Passes everything on to a hook."""

    __class__ = est.SessionRunHook

    def __init__(self, hook):
        self.hook = hook

    def __getattr__(self, name):
        return getattr(self.hook, name)


@pytest.mark.parametrize("is_proxy", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: mock.Mock(wraps=est.SessionRunHook(), spec=est.SessionRunHook),
        lambda: mock.create_autospec(est.SessionRunHook, instance=True),
    ],
    ids=["mock", "autospec"],
)
def test_mocks_and_proxies_are_hooks(model, make, is_proxy):
    hook = make()
    hook.before_run.return_value = None
    given = Proxy(hook) if is_proxy else hook
    model.train(forever(2.0), hooks=[given], steps=3)
    assert [getattr(hook, name).call_count for name in METHODS] == [1, 1, 3, 3, 1]
    hook.reset_mock()
    model.evaluate(forever(2.0), hooks=[given], steps=2)
    assert [getattr(hook, name).call_count for name in METHODS] == [1, 1, 2, 2, 1]


class SetsStep(v1.train.SessionRunHook):
    """As a hook that ends training early, and lets an evaluator know by the last step."""

    def __init__(self, is_last):
        self.is_last, self.num_calls = is_last, 0

    def begin(self):
        self.set_step = v1.train.get_global_step().assign(1000)

    def after_run(self, run_context, run_values):
        self.num_calls += 1
        if self.num_calls == 4:
            run_context.session.run(self.set_step.op)
            if self.is_last:
                run_context.request_stop()


@pytest.mark.parametrize(("is_last", "last"), [(True, 1000), (False, 1003)])
def test_a_checkpoint_has_the_step_that_a_hook_has_set(tmp_path, is_last, last):
    config = est.RunConfig(save_checkpoints_steps=100)
    trained = est.Estimator(mean_model_fn, os.fspath(tmp_path), config)
    trained.train(forever(), max_steps=1003, hooks=[SetsStep(is_last)])
    assert checkpoint_steps(tmp_path)[-1] == last
    for step in checkpoint_steps(tmp_path):
        path = os.path.join(tmp_path, f"model.ckpt-{step}")
        assert tf.train.load_variable(path, "global_step") == step
