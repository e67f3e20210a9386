"""Wide and deep by tf.estimator 2.15, in its own environment: a step is a session call."""

import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks import wide_deep_input as shared
from benchmarks.processes import answer
from benchmarks.turns import Turns


class _ReportHook(tf.compat.v1.train.SessionRunHook):
    """Calls `report(1)` after each step, and stops when it returns False."""

    def __init__(self, report: Callable[[int], bool]) -> None:
        """`report` may block, until it is this contender's turn."""
        self._report = report

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """A step is over."""
        del run_values
        if not self._report(1):
            run_context.request_stop()


def measure() -> dict:
    """Trains until there are no more turns."""
    wide, deep = shared.make_columns()
    config = tf.estimator.RunConfig(
        save_checkpoints_secs=None,
        save_checkpoints_steps=None,
        save_summary_steps=None,
        log_step_count_steps=None,
    )
    with tempfile.TemporaryDirectory() as directory:
        tf.estimator.DNNLinearCombinedClassifier(
            directory,
            linear_feature_columns=wide,
            linear_optimizer=tf.keras.optimizers.legacy.Ftrl(shared.LINEAR_RATE),
            dnn_feature_columns=deep,
            dnn_optimizer=tf.keras.optimizers.legacy.Adagrad(shared.DNN_RATE),
            dnn_hidden_units=shared.HIDDEN_UNITS,
            config=config,
        ).train(shared.make_training_input, hooks=[_ReportHook(Turns())])
    return {}


if __name__ == "__main__":
    answer(measure)
