"""Evaluates the weights of a running training without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.checkpoint.memory_checkpoint import read_state
from estimator.checkpoint.writer import build_saver
from estimator.config.checks import WrongTypeError, check_name, checked_count
from estimator.hooks.estimator_config import config_of
from estimator.input.input_calls import check_input_fn
from estimator.session.hooked_session import Hook, ScheduledHook, check_hooks
from estimator.session.schedule import Schedule


class InMemoryEvaluatorHook(ScheduledHook):
    """A hook for `train` that evaluates the current weights without writing a checkpoint.

    The contents of a checkpoint are read from the training session and loaded into the session that
    `Estimator.evaluate` keeps, so it works with every strategy and loop. The metrics go to the
    event file in `estimator.eval_dir(name)`, like those of `evaluate`.

        hook = InMemoryEvaluatorHook(classifier, eval_input_fn, every_n_iter=1000)
        classifier.train(train_input_fn, hooks=[hook])
    """

    def __init__(
        self,
        estimator: Any,
        input_fn: Callable,
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        """Checks the arguments.

        Args:
          estimator: the Estimator that is trained.
          input_fn: the input of the evaluation; see `Estimator.evaluate`.
          steps: the maximum number of global batches; None for all.
          hooks: hooks called around each batch.
          name: the name of the evaluation, which determines its directory.
          every_n_iter: evaluates at global steps that are multiples of this, where loops then end;
            also before the first step, so that mistakes show early, and after the last.

        Raises:
          TypeError, ValueError: an argument is wrong, or the config describes a cluster.
        """
        if not config_of(estimator).cluster.is_alone:
            raise ValueError(
                "InMemoryEvaluatorHook needs a training on one machine, and TF_CONFIG describes a "
                "cluster. Evaluate checkpoints instead."
            )
        check_input_fn(input_fn)
        check_hooks(hooks)
        if steps is not None:
            steps = checked_count("steps", steps)
        check_name(name)
        self._estimator = estimator
        self._arguments = {"input_fn": input_fn, "steps": steps, "hooks": hooks, "name": name}
        self.schedule = Schedule(checked_count("every_n_iter", every_n_iter))
        self._evaluated = -1

    def begin(self) -> None:
        """Adds the op that reads the global step; finds the saver, which determines the weights."""
        v1 = tf.compat.v1
        savers = v1.get_collection(v1.GraphKeys.SAVERS)
        self._saver = savers[0] if savers else build_saver()
        if not isinstance(self._saver, v1.train.Saver):
            raise WrongTypeError(
                f"The saver of the Scaffold ({self._saver!r}) must be a tf.compat.v1.train.Saver "
                "for an InMemoryEvaluatorHook."
            )
        super().begin()

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Evaluates the initial weights."""
        super().after_create_session(session, coord)
        self._evaluate(session)

    def act(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Evaluates the current weights."""
        self._evaluate(run_context.session)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Evaluates the last step, unless it was already evaluated."""
        self._step = int(session.run(self._step_read))  # The input may have ended inside a loop.
        if self._step != self._evaluated:
            self._evaluate(session)

    def _evaluate(self, session: tf.compat.v1.Session) -> None:
        self._evaluated = self._step
        self._estimator.evaluate_state(read_state(self._saver, session), **self._arguments)
