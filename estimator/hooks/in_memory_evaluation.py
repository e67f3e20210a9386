"""Evaluates the weights of a training that runs, without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.checkpoint.memory_checkpoint import read_state
from estimator.checkpoint.writer import build_saver
from estimator.config.checks import WrongTypeError, check_int, check_name
from estimator.input.input_calls import check_input_fn
from estimator.session.hooked_session import Hook, ScheduledHook, check_hooks, config_of
from estimator.session.schedule import Schedule


class InMemoryEvaluatorHook(ScheduledHook):
    """A hook for `train` that evaluates the weights as they are then; nothing goes to `model_dir`.

    What a checkpoint would hold is read from the session that trains and loaded into the one that
    `Estimator.evaluate` keeps, so it works under every strategy and with every loop. The metrics go
    to the event file in `estimator.eval_dir(name)`, as those of `evaluate` do.

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
        """Checks its arguments; evaluates nothing yet.

        Args:
          estimator: the Estimator that is trained.
          input_fn: as for `evaluate`, like the following three.
          steps: at most this many global batches; None for all.
          hooks: called around each batch.
          name: of the evaluation, for its directory.
          every_n_iter: evaluates at the global steps that are multiples of it, where loops end
            then, and besides before the first step, so that a mistake shows early, and after the
            last.

        Raises:
          TypeError, ValueError: an argument is wrong, or the config is of a cluster.
        """
        config = config_of(estimator)
        if config.num_ps_replicas > 0 or config.num_worker_replicas > 1:
            raise ValueError(
                "InMemoryEvaluatorHook needs a training on one machine, and TF_CONFIG describes a "
                "cluster. Evaluate checkpoints instead."
            )
        check_input_fn(input_fn)
        check_hooks(hooks)
        if steps is not None:
            check_int("steps", steps)
        check_name(name)
        check_int("every_n_iter", every_n_iter)
        self._estimator = estimator
        self._arguments = {"input_fn": input_fn, "steps": steps, "hooks": hooks, "name": name}
        self.schedule = Schedule(every_n_iter)
        self._evaluated = -1

    def begin(self) -> None:
        """Adds the op that reads the global step; finds the saver, which knows the weights."""
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
        """Evaluates what training starts from."""
        super().after_create_session(session, coord)
        self._evaluate(session)

    def act(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Evaluates."""
        self._evaluate(run_context.session)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Evaluates the last step, unless that was done."""
        self._step = int(session.run(self._step_read))  # The input may have ended within a loop.
        if self._step != self._evaluated:
            self._evaluate(session)

    def _evaluate(self, session: tf.compat.v1.Session) -> None:
        self._evaluated = self._step
        self._estimator.evaluate_state(read_state(self._saver, session), **self._arguments)
