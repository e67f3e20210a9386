"""The library under test, used as a user would: a `model_fn`, an `input_fn`, a `RunConfig`."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

import estimator as est
from benchmarks.workloads import (
    LEARNING_RATE,
    Workload,
    compute_loss,
    compute_predictions,
    make_training_input,
)


@dataclasses.dataclass(frozen=True)
class Setup:
    """How to train: the steps of a loop, and over how many replicas.

    `strategy` None: mirrored over logical CPUs if there are several. In a cluster it has a name.
    """

    loop_steps: int = 1
    num_replicas: int = 1
    writes_checkpoints: bool = False
    strategy: str | None = None
    make_optimizer: Callable[[], tf.compat.v1.train.Optimizer] = lambda: (
        tf.compat.v1.train.GradientDescentOptimizer(LEARNING_RATE)
    )


def make_config(setup: Setup) -> est.RunConfig:
    """A `RunConfig` that, unless checkpoints are asked for, trains and does nothing else."""
    config = est.RunConfig(iterations_per_loop=setup.loop_steps)
    if setup.strategy is not None:
        config = config.replace(strategy=setup.strategy)
    elif setup.num_replicas > 1:
        config = config.replace(strategy="mirrored", num_replicas=setup.num_replicas)
    if setup.writes_checkpoints:
        return config
    return config.replace(
        save_checkpoints_secs=None,
        save_checkpoints_steps=None,
        save_summary_steps=None,
        log_step_count_steps=None,
    )


def make_estimator(workload: Workload, model_dir: str, setup: Setup) -> est.Estimator:
    """An estimator for the workload."""
    return est.Estimator(
        model_fn=make_model_fn(workload, setup.make_optimizer),
        model_dir=model_dir,
        config=make_config(setup),
    )


def make_model_fn(
    workload: Workload,
    make_optimizer: Callable[[], tf.compat.v1.train.Optimizer] = Setup.make_optimizer,
) -> Callable[..., est.EstimatorSpec]:
    """A `model_fn` with the ops and the optimizer of the other contenders."""

    def model_fn(features: tf.Tensor, labels: tf.Tensor | None, mode: str) -> est.EstimatorSpec:
        is_training = mode == est.ModeKeys.TRAIN
        logits = workload.forward(_get_variable, features, is_training)
        predictions = compute_predictions(logits)
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions=predictions)
        loss = compute_loss(logits, labels)
        if mode == est.ModeKeys.EVAL:
            accuracy = tf.compat.v1.metrics.accuracy(labels, predictions["class"])
            return est.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
        global_step = tf.compat.v1.train.get_or_create_global_step()
        train_op = make_optimizer().minimize(loss, global_step=global_step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def _get_variable(name: str, shape: Sequence[int], initializer: Callable) -> tf.Variable:
    return tf.compat.v1.get_variable(name, shape, initializer=initializer)


class ReportHook(tf.compat.v1.train.SessionRunHook):
    """Calls `report(steps)` after each session call, and stops when it returns False."""

    def __init__(
        self, report: Callable[[int], bool], loop_steps: int, is_alone: bool = True
    ) -> None:
        """A session call runs `loop_steps` steps; all there are, if no other worker has a say."""
        self._report = report
        self._is_alone = is_alone
        self._loop_steps = loop_steps
        self._num_steps = 0

    def begin(self) -> None:
        """The graph is built."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_run(self, run_context: object, run_values: object) -> None:
        """A session call is over; the next one starts when `report` returns."""
        del run_values
        self._num_steps += self._loop_steps
        if not self._report(self._loop_steps):
            run_context.request_stop()

    def end(self, session: tf.compat.v1.Session) -> None:
        """Checks that as many steps were run as were counted, unless others had a say."""
        global_step = session.run(self._global_step)
        if self._is_alone and global_step != self._num_steps:
            raise RuntimeError(f"{global_step} steps were run, {self._num_steps} were counted.")


def train_ours(
    workload: Workload, model_dir: str, setup: Setup, report: Callable[[int], bool]
) -> None:
    """Trains until `report(steps of the last call)` returns False."""
    batch_size = workload.batch_size // setup.num_replicas
    make_estimator(workload, model_dir, setup).train(
        input_fn=lambda: make_training_input(workload, batch_size),
        hooks=[ReportHook(report, setup.loop_steps, is_alone=setup.strategy is None)],
    )
