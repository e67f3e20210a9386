"""What the tasks of a cluster run whose training ends, or does not begin.

python ending_run.py SCENARIO MODEL_DIR [ARGUMENT]
"""

import os
import pathlib
import signal
import sys
import time

import tensorflow as tf

import estimator as est
from estimator.runtime.parameter_server import ParameterServerRuntime
from estimator.training.end_record import read_end, write_end
from tests.integration.lost_run import Say, make_model, run
from tests.integration.worker_run import Weights, average_model_fn, numbers, say


def stop_at_step(model, step):
    hook = est.experimental.make_stop_at_checkpoint_step_hook(model, step, 1)
    model.train(numbers(None), [hook], max_steps=5000)
    say(case="stopped", step=model.train_result.global_step, reason=model.train_result.reason)
    model.train(numbers(None), max_steps=step)
    say(case="finished", step=model.train_result.global_step, reason=model.train_result.reason)


def together(model_dir):
    """Workers that wait for each other, each with a directory that no other sees."""
    own = f"{model_dir}/{est.RunConfig().task_id}"
    changes = {"strategy": "multi_worker_mirrored", "save_checkpoints_steps": None}
    for loop in (1, 5):
        model = make_model(f"{own}/loop{loop}", iterations_per_loop=loop, **changes)
        stop_at_step(model, 4)
    for name in ("all", "chief"):
        config = model.config.replace(model_dir=f"{own}/warm_{name}")
        old = f"{own}/loop1" if name == "all" or config.is_chief else None
        warm = est.Estimator(average_model_fn, config=config, warm_start_from=old)
        warm.train(numbers(None), [Weights(name)], max_steps=1)
    old = f"{model_dir}/0/loop1"
    for name in ("all", "chief", "the other"):
        config = model.config.replace(model_dir=f"{own}/init_{name}")
        loads = name == "all" or config.is_chief == (name == "chief")
        made = est.Estimator(make_model_fn(old) if loads else average_model_fn, config=config)
        made.train(numbers(None), [Weights(name)], max_steps=1)
    for name, loaded, warm in (("average_init", old, None), ("average_warm", None, old)):
        config = model.config.replace(model_dir=f"{own}/{name}")
        made = est.Estimator(make_averaged(loaded), config=config, warm_start_from=warm)
        made.train(numbers(None), max_steps=1)
    for name, old in (("count", None), ("warm_count", f"{own}/count")):
        config = model.config.replace(model_dir=f"{own}/{name}")
        settings = est.WarmStartSettings(old, ["count"]) if old and config.is_chief else None
        made = est.Estimator(count_model_fn, config=config, warm_start_from=settings)
        made.train(numbers(None), max_steps=1)
    config = model.config.replace(model_dir=f"{own}/init_count")
    loads = make_model_fn(f"{own}/count", "count", count_model_fn)
    made = est.Estimator(loads if config.is_chief else count_model_fn, config=config)
    made.train(numbers(None), max_steps=1)
    config = model.config.replace(model_dir=f"{own}/chief_counts")
    for max_steps in (1, 2):
        made = est.Estimator(chief_counts_model_fn, config=config)
        made.train(numbers(None), max_steps=max_steps)


def count_model_fn(features, labels, mode):
    """With a variable of which a checkpoint holds the sum over the replicas."""
    tf.compat.v1.get_variable(
        "count",
        [],
        initializer=tf.compat.v1.ones_initializer(),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
    return average_model_fn(features, labels, mode)


def chief_counts_model_fn(features, labels, mode, config):
    """The chief alone counts its steps, which it saves; the others know nothing of that."""
    spec = average_model_fn(features, labels, mode)
    zeros = tf.compat.v1.zeros_initializer()
    count = tf.compat.v1.get_variable("chiefs", [], initializer=zeros, trainable=False)
    if config.is_chief:
        spec = spec.replace(train_op=tf.group(spec.train_op, count.assign_add(1.0)))
    return spec


def make_model_fn(old, name="w", begin=average_model_fn):
    """Of a model that begins with a variable of an old one."""

    def model_fn(features, labels, mode):
        spec = begin(features, labels, mode)
        tf.compat.v1.train.init_from_checkpoint(old, {name: name})
        return spec

    return model_fn


def make_averaged(old):
    """Of a model with an average that stays at its first value, which is the weight's.

    A local variable starts from the weight, too.
    """

    def model_fn(features, labels, mode):
        spec = average_model_fn(features, labels, mode)
        (weight,) = tf.compat.v1.trainable_variables()
        average = tf.train.ExponentialMovingAverage(1.0)
        averaged = average.apply([weight])
        local = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
        tf.compat.v1.Variable(weight.read_value(), trainable=False, collections=local)
        if old is not None:
            tf.compat.v1.train.init_from_checkpoint(old, {"w": "w"})
        return spec.replace(train_op=tf.group(spec.train_op, averaged))

    return model_fn


def beside_ps(model_dir):
    model = make_model(model_dir, iterations_per_loop=5, save_checkpoints_steps=None)
    if model.config.task_type == "ps":
        run(model)
    else:
        stop_at_step(model, 20)


def stopped_early(model_dir, strategy):
    """An evaluation that is there already says that training is to stop."""
    model = make_model(model_dir, strategy=strategy)
    if model.config.task_type == "ps":
        run(model)
        return
    hook = est.experimental.stop_if_lower_hook(model, "loss", 1e9)
    model.train(numbers(None), [hook], max_steps=5000)
    say(step=model.train_result.global_step, reason=model.train_result.reason)


def finished(model_dir, max_steps, strategy):
    """Nothing is left to train."""
    run(make_model(model_dir, strategy=strategy), int(max_steps))


def restarted(model_dir, strategy):
    """Nothing is left to train, and some of the other tasks do not come."""
    # A ps without word of the end waits for a chief that comes.
    is_patient = est.RunConfig().task_type == "ps" and read_end(model_dir) is None
    changes = {"strategy": strategy, "session_creation_timeout_secs": 60 if is_patient else 3}
    run(make_model(model_dir, **changes), 4)


def twice(model_dir):
    """Trains in two calls."""
    for max_steps in (4, 8):
        run(make_model(model_dir), max_steps)


def late(model_dir, strategy):
    """The other tasks end while this one builds its model."""

    def input_fn():
        write_end(model_dir, exit_status=0, reason="max_steps")
        return numbers(None)()

    # After half of this time, the worker looks whether training has ended.
    changes = {"strategy": strategy, "session_creation_timeout_secs": 6}
    run(make_model(model_dir, **changes), 4, input_fn=input_fn)


def wait_until(is_true):
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.1)


class Held(est.SessionRunHook):
    """Waits for a file after the first step, and the chief's for another one at the end."""

    def __init__(self, model_dir, is_chief):
        self.model_dir, self.is_chief = pathlib.Path(model_dir), is_chief

    def after_run(self, run_context, run_values):
        print("trains", flush=True)
        wait_until((self.model_dir / "go").exists)

    def end(self, session):
        if self.is_chief:
            print("ends", flush=True)
            wait_until((self.model_dir / "end").exists)


def back_late(model_dir):
    """A worker that is started again finds the others, which end before it opens its session."""
    model = make_model(model_dir, strategy="parameter_server", save_checkpoints_steps=None)

    def start_late(runtime):
        print("starts", flush=True)
        wait_until(lambda: read_end(model_dir) is not None)
        time.sleep(2)

    if model.config.task_type == "worker" and os.path.exists(os.path.join(model_dir, "go")):
        ParameterServerRuntime.start = start_late
    hooks = [Held(model_dir, model.config.is_chief)]
    train_spec = est.TrainSpec(numbers(None), 4, hooks)
    result = est.train_and_evaluate(model, train_spec, est.EvalSpec(numbers(4), steps=None))
    print(result.train_result.global_step, result.train_result.reason, flush=True)


def drained(model_dir, chiefs_batches):
    """Training that ends by a signal; the chief's input may end before."""
    model = make_model(model_dir, save_checkpoints_steps=None)
    batches = int(chiefs_batches) if model.config.is_chief else 0
    run(model, input_fn=numbers(batches or None))


def alone(model_dir):
    """One task trains, to the end of its input."""
    model = make_model(model_dir)
    spec = est.EvalSpec(numbers(4), steps=None, start_delay_secs=0, throttle_secs=0)
    result = est.train_and_evaluate(model, est.TrainSpec(numbers(25), 1000, [Say()]), spec)
    is_evaluated = result.metrics is not None
    say(role=model.config.task_type, is_evaluated=is_evaluated, reason=result.train_result.reason)


if __name__ == "__main__":
    # A process that a shell started with `&` ignores SIGINT, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    globals()[sys.argv[1]](*sys.argv[2:])
