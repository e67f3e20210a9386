"""Hooks that a model brings along, and listeners of checkpoints wherever they are given."""

import concurrent.futures
import json
import logging

import pytest
import tensorflow as tf

import estimator as est
from estimator.cluster.server import Connection
from estimator.estimators import train_setup
from estimator.runtime.multi_worker import MultiWorkerRuntime
from estimator.runtime.strategy import make_training_runtime
from estimator.session.hook_errors import HookInLoopError
from tests.conformance import cases
from tests.toy import Model, checkpoint_steps, numbers, weight_after

v1 = tf.compat.v1

STRATEGIES = pytest.mark.parametrize(
    "strategy", ["no_strategy", "one_device", "mirrored_x2", "central_storage_x2"]
)
LOOPS = pytest.mark.parametrize("loop", [1, 100])


class Counts(v1.train.SessionRunHook):
    """Counts its calls, and notes the step at the last one."""

    def __init__(self, calls, name):
        self.calls, self.name = calls, name

    def _count(self, verb):
        self.calls[f"{self.name} {verb}"] = self.calls.get(f"{self.name} {verb}", 0) + 1

    def begin(self):
        self._count("begin")
        self.step = v1.train.get_global_step()

    def after_create_session(self, session, coord):
        self._count("session")

    def after_run(self, run_context, run_values):
        self._count("run")
        self.calls[f"{self.name} last step"] = int(run_context.session.run(self.step))

    def end(self, session):
        self._count("end")


def make_model_fn(make_hooks, is_tpu=False):
    """Its weight is the number of steps; `make_hooks` takes the loss, and returns them by name."""

    def model_fn(features, labels, mode):
        loss = tf.reduce_mean(tf.cast(features, tf.float32), name="my_loss")
        step = v1.train.get_global_step()
        spec = est.tpu.TPUEstimatorSpec if is_tpu else est.EstimatorSpec
        return spec(
            mode,
            predictions=tf.cast(features, tf.float32),
            loss=loss,
            train_op=step.assign_add(1),
            **make_hooks(loss),
        )

    return model_fn


def make(model_dir, model_fn, strategy, loop, **config):
    run_config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop, **config)
    return est.Estimator(model_fn, str(model_dir), run_config)


@pytest.mark.each_value
@pytest.mark.parametrize(("loop", "is_tpu"), [(1, False), (100, False), (100, True)])
@STRATEGIES
def test_each_verb_runs_the_hooks_of_its_own(tmp_path, strategy, loop, is_tpu):
    calls = {}

    def make_hooks(loss):
        names = ["training_hooks", "evaluation_hooks", "prediction_hooks"]
        names += [] if is_tpu else ["training_chief_hooks"]
        return {name: [Counts(calls, name.split("_h")[0])] for name in names}

    trained = make(tmp_path, make_model_fn(make_hooks, is_tpu), strategy, loop)
    trained.train(numbers(), steps=4)
    chief = {} if is_tpu else {"training_chief": 4 if loop == 1 else 1}
    training = {"training": 4 if loop == 1 else 1, **chief}
    assert calls == {
        f"{name} {verb}": count
        for name, runs in training.items()
        for verb, count in {"begin": 1, "session": 1, "run": runs, "end": 1, "last step": 4}.items()
    }
    for verb, name in (("evaluate", "evaluation"), ("predict", "prediction")):
        calls.clear()
        result = getattr(trained, verb)(numbers(6, 1))
        if verb == "predict":
            assert list(result) == [0, 1, 2, 3, 4, 5]
        runs = 3 if strategy == "mirrored_x2" else 6
        assert calls == {
            f"{name} {verb}": count
            for verb, count in {
                "begin": 1,
                "session": 1,
                "run": runs,
                "end": 1,
                "last step": 4,
            }.items()
        }


@pytest.mark.each_value
@STRATEGIES
@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_a_logging_tensor_hook_of_the_caller_finds_a_tensor_by_its_name(tmp_path, strategy, verb):
    logged = []
    trained = make(tmp_path, make_model_fn(lambda loss: {}), strategy, 1)
    trained.train(numbers(), steps=1)
    hook = est.LoggingTensorHook(
        ["my_loss"],
        every_n_iter=1,
        formatter=lambda values: logged.append(values["my_loss"]) or "",
    )
    given = {"steps": 2} if verb != "predict" else {}
    result = getattr(trained, verb)(numbers(4), hooks=[hook], **given)
    if verb == "predict":
        assert list(result) == [0, 1, 2, 3]
    # It has the name in the first replica.
    is_x2 = strategy == "mirrored_x2" or (strategy.endswith("x2") and verb == "train")
    every = [0, 2] if is_x2 else [0, 1, 2, 3]
    assert logged == every[: 4 if verb == "predict" else 2]


class Notes(v1.train.CheckpointSaverListener):
    """Notes the steps that are saved; asks to stop at one."""

    def __init__(self, notes, name, stop_at=None):
        self.notes, self.name, self.stop_at = notes, name, stop_at

    def after_save(self, session, global_step_value):
        self.notes.append((self.name, int(global_step_value)))
        return global_step_value == self.stop_at


class Runs(v1.train.SessionRunHook):
    """Runs, between session calls, what its model has made."""

    def __init__(self, fed, assigned, read):
        self.fed, self.assigned, self.read, self.seen = fed, assigned, read, []

    def after_create_session(self, session, coord):
        session.run(self.assigned, {self.fed: 3.0})
        self.seen.append(session.run({"read": self.read})["read"])

    def after_run(self, run_context, run_values):
        run_context.session.run(self.assigned, feed_dict={self.fed: 4.0})

    def end(self, session):
        self.seen.append(session.run(self.read))


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_models_hook_runs_what_the_model_made_where_no_step_needs_it(tmp_path, strategy, loop):
    hooks = []

    def make_hooks(loss):
        w = v1.get_variable(
            "w",
            [],
            initializer=v1.zeros_initializer(),
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        fed = v1.placeholder(tf.float32, [])
        hook = Runs(fed, tf.group(w.assign(10 * fed)), w + 1.0)
        hooks.append(hook)
        return {"training_hooks": [hook]}

    class Reads(v1.train.CheckpointSaverListener):
        def before_save(self, session, global_step_value):
            (hook,) = hooks[:1]
            hook.seen.append((global_step_value, session.run([hook.read])[0]))

    trained = make(tmp_path, make_model_fn(make_hooks), strategy, loop, save_checkpoints_steps=4)
    trained.train(numbers(), steps=4, saving_listeners=[Reads()])
    assert hooks[0].seen == [(0, 1), 31, (4, 41), 41]
    assert trained.get_variable_value("global_step") == 4


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_models_hook_runs_what_the_model_made_in_threads(tmp_path, strategy, loop):
    """As K-FAC's optimizer does, which inverts matrices beside the steps."""
    results = []

    class RunsInThreads(v1.train.SessionRunHook):
        def __init__(self, tensors):
            self.tensors = tensors

        def after_run(self, run_context, run_values):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                results.append(list(pool.map(run_context.session.run, self.tensors)))

    def make_hooks(loss):
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer(), trainable=False)
        return {"training_hooks": [RunsInThreads([w + float(i) for i in range(8)])]}

    trained = make(tmp_path, make_model_fn(make_hooks), strategy, loop)
    trained.train(numbers(), steps=3)
    assert results
    assert all(found == list(range(8)) for found in results)


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 20])
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
def test_a_hook_that_fetches_the_global_step_gets_the_one_before_the_call(tmp_path, strategy, loop):
    """Whether or not the variable's own read happens to come before the step."""

    class FetchesStep(v1.train.SessionRunHook):
        def begin(self):
            self.step, self.seen = v1.train.get_global_step(), []

        def before_run(self, run_context):
            return v1.train.SessionRunArgs({"step": self.step})

        def after_run(self, run_context, run_values):
            self.seen.append(run_values.results["step"])

    def model_fn(features, labels, mode):
        with tf.control_dependencies([v1.train.get_global_step().assign_add(1)]):
            return Model()(features, labels, mode).replace(train_op=tf.no_op())

    hook = FetchesStep()
    make(tmp_path, model_fn, strategy, loop).train(numbers(), [hook], steps=60)
    assert hook.seen == list(range(0, 60, loop))


@pytest.mark.parametrize("loop", [1, 20])
def test_a_hook_fetches_a_mean_over_replicas_that_they_once_had(tmp_path, loop):
    """Not one of a replica before its update and of another after it."""

    class FetchesMean(v1.train.SessionRunHook):
        def begin(self):
            (self.mean,) = (v for v in v1.global_variables() if v.name == "mean:0")
            self.seen = []

        def before_run(self, run_context):
            return v1.train.SessionRunArgs(self.mean)

        def after_run(self, run_context, run_values):
            self.seen.append(float(run_values.results))

    def model_fn(features, labels, mode):
        mean = v1.get_variable(
            "mean",
            initializer=0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with tf.control_dependencies([mean.assign_add(2.0 + 2.0 * tf.cast(replica, tf.float32))]):
            return Model()(features, labels, mode)

    hook = FetchesMean()
    make(tmp_path, model_fn, "mirrored_x2", loop).train(numbers(), [hook], steps=60)
    assert hook.seen == [3.0 * step for step in range(loop, 61, loop)]


@STRATEGIES
def test_a_models_hook_must_not_run_what_needs_the_batch_of_a_loop(tmp_path, strategy):
    def make_hooks(loss):
        return {"training_hooks": [Runs(loss, loss + 1.0, loss)]}

    trained = make(tmp_path, make_model_fn(make_hooks), strategy, loop=100)
    with pytest.raises(
        ValueError, match=r"The hook Runs fails: `session\.run` needs '.*', which has a value only"
    ):
        trained.train(numbers(), steps=4)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("loop", "where"), [(1, "hooks"), (100, "training_hooks"), (1, "training_chief_hooks")]
)
@STRATEGIES
def test_listeners_are_told_of_each_save_of_whoever_saves(tmp_path, strategy, loop, where):
    notes = []

    def make_hook():
        return est.CheckpointSaverHook(
            str(tmp_path), save_steps=2, listeners=[Notes(notes, "hook's")]
        )

    def make_hooks(loss):
        return {} if where == "hooks" else {where: [make_hook()]}

    trained = make(tmp_path, make_model_fn(make_hooks), strategy, loop, keep_checkpoint_max=9)
    trained.train(
        numbers(),
        max_steps=5,
        hooks=[make_hook()] if where == "hooks" else None,
        saving_listeners=[Notes(notes, "train's")],
    )
    steps = sorted({step for _, step in notes})
    # The hook saves after the first call, which a loop makes longer, and every 2 steps from there.
    assert steps == checkpoint_steps(tmp_path)
    assert steps[-1] == 5
    assert notes == [(name, step) for step in steps for name in ("hook's", "train's")]


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_listener_of_a_models_hook_can_stop_training(tmp_path, strategy, loop):
    notes = []

    def make_hooks(loss):
        listeners = [Notes(notes, "a", stop_at=4), Notes(notes, "b")]
        hook = est.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=listeners)
        return {"training_chief_hooks": [hook]}

    trained = make(tmp_path, make_model_fn(make_hooks), strategy, loop)
    trained.train(numbers(), max_steps=2)
    trained.train(numbers(), max_steps=20)
    assert trained.train_result.global_step == 4
    assert trained.train_result.reason in ("hook", "listener")
    assert notes[-2:] == [("a", 4), ("b", 4)]


@LOOPS
def test_the_role_master_is_the_chief_which_saves_and_runs_the_chiefs_hooks(
    tmp_path, monkeypatch, loop
):
    cluster = {"master": ["localhost:1"]}
    task = {"type": "master", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    calls = {}

    def make_hooks(loss):
        return {"training_chief_hooks": [Counts(calls, "chief")]}

    trained = make(tmp_path, make_model_fn(make_hooks), "no_strategy", loop)
    assert trained.config.is_chief
    trained.train(numbers(), steps=3)
    assert checkpoint_steps(tmp_path) == [0, 3]
    assert calls["chief end"] == 1


class Groups(v1.train.SessionRunHook):
    """Builds on an op of its model in `begin`, as the hooks of Mesh TensorFlow do."""

    def __init__(self, op):
        self.op = op

    def begin(self):
        self.op = tf.group(self.op)

    def after_create_session(self, session, coord):
        session.run(self.op)


class Fetches(v1.train.SessionRunHook):
    """Fetches a tensor of its model in each session call from the given one on."""

    def __init__(self, tensor, values, first_call=0):
        self.tensor, self.values, self.num_left = tensor, values, first_call

    def before_run(self, run_context):
        self.num_left -= 1
        return v1.train.SessionRunArgs(self.tensor) if self.num_left < 0 else None

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


def model_for_tpus(make_hook):
    """`Model` with a copy of its weight plus 1, and a hook made from the op that assigns it."""

    def model_fn(features, labels, mode, params):
        spec = Model()(features, labels, mode)
        if mode == est.ModeKeys.TRAIN:
            copy = v1.get_variable("copy", [], trainable=False)
            (weight,) = v1.trainable_variables()
            hook = make_hook(copy.assign(weight + 1.0), tf.reduce_sum(features))
            spec = spec.replace(training_hooks=[hook])
        return spec

    return model_fn


def make_for_tpus(model_dir, make_hook, loop=5, **config):
    tpu_config = est.tpu.TPUConfig(iterations_per_loop=loop)
    run_config = est.tpu.RunConfig(
        model_dir=str(model_dir), tpu_config=tpu_config, log_step_count_steps=None, **config
    )
    return est.tpu.TPUEstimator(
        model_for_tpus(make_hook), config=run_config, train_batch_size=1, use_tpu=False
    )


def input_with_params(params):
    return numbers(batch_size=params["batch_size"])()


def test_a_program_for_tpus_whose_hook_builds_on_an_op_of_its_model_trains_single_steps(
    tmp_path, caplog
):
    trained = make_for_tpus(tmp_path, lambda op, features: Groups(op))
    with caplog.at_level(logging.WARNING, "estimator"):
        trained.train(input_with_params, steps=7)
    (warning,) = [m for m in caplog.messages if "each session call runs one step" in m]
    assert "The hook Groups fails" in warning
    assert trained.train_result.global_step == 7
    weights = {name: trained.get_variable_value(name) for name in ("w", "copy")}
    assert weights == {"w": weight_after([[i] for i in range(7)]), "copy": 1.0}


@pytest.mark.parametrize("max_steps", [6, 7])
def test_a_program_for_tpus_whose_hook_fetches_a_tensor_of_its_model_trains_single_steps(
    tmp_path, max_steps
):
    seen = []
    trained = make_for_tpus(tmp_path, lambda op, features: Fetches(features, seen))
    for last_step in (4, max_steps):
        trained.train(input_with_params, max_steps=last_step)
    assert seen == list(range(max_steps))
    assert trained.get_variable_value("w") == weight_after([[i] for i in range(max_steps)])


def test_a_hook_that_fetches_a_tensor_of_its_model_later_is_an_error(tmp_path):
    trained = make_for_tpus(
        tmp_path, lambda op, features: Fetches(features, [], 1), save_checkpoints_steps=5
    )
    with pytest.raises(ValueError, match="Fetches asks for .* lives inside the loop"):
        trained.train(input_with_params, steps=20)
    assert checkpoint_steps(tmp_path) == [0, 5]


def test_on_one_of_several_workers_it_is_an_error_as_the_others_run_loops(monkeypatch):
    def run(config, connection):
        configs.append(config)
        raise HookInLoopError("The hook fails.", has_trained=False)

    configs = []
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief"}}))
    config = est.tpu.RunConfig(strategy="multi_worker_mirrored")
    # Starts no server.
    monkeypatch.setattr(MultiWorkerRuntime, "begin_training", lambda runtime: Connection())
    with pytest.raises(HookInLoopError, match="iterations_per_loop=1"):
        train_setup.run_with_loops(run, config, make_training_runtime(config))
    assert configs == [config]
