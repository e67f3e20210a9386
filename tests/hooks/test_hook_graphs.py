"""The graph of the session is the default one wherever a hook or a listener is called."""

import logging

import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers

v1 = tf.compat.v1
LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 5])
CALLBACKS = {"begin", "after_create_session", "before_run", "after_run", "end"}
TOLD = {"begin", "before_save", "after_save", "end"}


class Looking:
    """Looks for the global step in each callback; notes which found that of the session's graph."""

    def __init__(self):
        self.found = set()

    def look(self, name, session=None):
        step = v1.train.get_global_step()
        assert step is not None, name
        if session is not None:
            assert session.run(step) >= 0
        self.found.add(name)


class LookingHook(Looking, v1.train.SessionRunHook):
    def begin(self):
        self.look("begin")

    def after_create_session(self, session, coord):
        self.look("after_create_session", session)

    def before_run(self, run_context):
        self.look("before_run", run_context.session)
        return v1.train.SessionRunArgs(v1.train.get_global_step())

    def after_run(self, run_context, run_values):
        self.look("after_run", run_context.session)

    def end(self, session):
        self.look("end", session)


class LookingListener(Looking, v1.train.CheckpointSaverListener):
    def begin(self):
        self.look("begin")

    def before_save(self, session, global_step_value):
        self.look("before_save", session)

    def after_save(self, session, global_step_value):
        self.look("after_save", session)

    def end(self, session, global_step_value):
        self.look("end", session)


class Hooked(Model):
    """A model with a hook of its own in each mode."""

    def __init__(self):
        super().__init__()
        self.hooks = {mode: LookingHook() for mode in ("train", "eval", "infer")}

    def __call__(self, features, labels, mode):
        hooks = [self.hooks[mode]]
        return (
            super()
            .__call__(features, labels, mode)
            .replace(training_hooks=hooks, evaluation_hooks=hooks, prediction_hooks=hooks)
        )


@LOOPS
def test_every_callback_of_every_verb_finds_the_global_step(iterations_per_loop, tmp_path):
    config = est.RunConfig(
        iterations_per_loop=iterations_per_loop, save_checkpoints_steps=5, save_summary_steps=None
    )
    given, listener, saving = [LookingHook() for _ in range(3)], LookingListener(), None
    with est.Estimator(Hooked(), str(tmp_path), config) as model:
        model.train(numbers(), [given[0]], steps=10, saving_listeners=[listener])
        model.evaluate(numbers(3), hooks=[given[1]])
        before = v1.get_default_graph()
        for _ in model.predict(numbers(3), hooks=[given[2]]):
            assert v1.get_default_graph() is before
        assert listener.found == TOLD
        for hook in [*given, *model._model_fn.hooks.values()]:
            assert hook.found == CALLBACKS
        # Listeners of a hook that saves in place of the library.
        saving = LookingListener()
        hook = v1.train.CheckpointSaverHook(str(tmp_path), save_steps=5, listeners=[saving])
        model.train(numbers(), [hook], steps=5)
    assert saving.found == TOLD


@LOOPS
def test_hooks_of_an_evaluation_amid_training_have_its_graph(iterations_per_loop, tmp_path):
    config = est.RunConfig(iterations_per_loop=iterations_per_loop, save_summary_steps=None)
    graphs = {"train": set(), "eval": set()}

    class Noting(v1.train.SessionRunHook):
        def __init__(self, verb):
            self.verb = verb

        def note(self, *_):
            graphs[self.verb].add(v1.get_default_graph())

        begin = after_create_session = before_run = after_run = end = note

    with est.Estimator(Model(), str(tmp_path), config) as model:
        inner = est.experimental.InMemoryEvaluatorHook(
            model, numbers(3), hooks=[Noting("eval")], every_n_iter=5
        )
        model.train(numbers(), [Noting("train"), inner, Noting("train")], steps=10)
    assert len(graphs["train"]) == 1
    assert graphs["train"].isdisjoint(graphs["eval"])


@LOOPS
def test_a_logging_hook_takes_a_list_of_tensors(iterations_per_loop, tmp_path, caplog):
    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        loss, twice = tf.identity(spec.loss, "loss"), tf.identity(2 * spec.loss, "twice")
        hook = v1.train.LoggingTensorHook([twice, loss], every_n_iter=5)
        named = v1.train.LoggingTensorHook(["loss", "twice"], every_n_iter=5)
        hooks = [hook, named]
        return spec.replace(training_hooks=hooks, evaluation_hooks=hooks, prediction_hooks=hooks)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, save_summary_steps=None)
    with (
        est.Estimator(model_fn, str(tmp_path), config) as model,
        caplog.at_level(logging.INFO, "tensorflow"),
    ):
        for verb in (
            lambda: model.train(numbers(), steps=10),
            lambda: model.evaluate(numbers(3)),
            lambda: list(model.predict(numbers(3))),
        ):
            caplog.clear()
            verb()
            logged = [r.getMessage() for r in caplog.records if "twice" in r.getMessage()]
            by_tensor = [line for line in logged if line.startswith('Tensor("')]
            assert by_tensor[0].index("twice:0") < by_tensor[0].index("loss:0")
            assert any(line.startswith("loss = ") and ", twice = " in line for line in logged)
            assert len(logged) == 2 * len(by_tensor) > 0


def test_a_hook_may_ask_for_any_structure_that_a_session_knows(tmp_path):
    class Asking(v1.train.SessionRunHook):
        def before_run(self, run_context):
            a, b = (run_context.session.graph.get_tensor_by_name(n) for n in ("a:0", "b:0"))
            return v1.train.SessionRunArgs({a: [b, (a,)], b: {"z": b, 1: a}, 2: "b:0"})

        def after_run(self, run_context, run_values):
            self.got = list(run_values.results.values())

    def model_fn(features, labels, mode):
        tf.constant(3.0, name="a"), tf.constant(4.0, name="b")
        return Model()(features, labels, mode)

    hook = Asking()
    with est.Estimator(model_fn, str(tmp_path)) as model:
        model.train(numbers(), [hook], steps=1)
        assert hook.got == [[4.0, (3.0,)], {"z": 4.0, 1: 3.0}, 4.0]
        model.evaluate(numbers(1), hooks=[hook])
    assert hook.got == [[4.0, (3.0,)], {"z": 4.0, 1: 3.0}, 4.0]
