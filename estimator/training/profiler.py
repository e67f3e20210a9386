"""Profiles a range of training steps for TensorBoard's profiler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from estimator import console
from estimator.console import log

_NOTHING = contextlib.nullcontext()


class ProfileWindow:
    """Profiles the steps after the first of two global steps, up to and including the second.

    Loops end on both. A training run that starts or ends between them profiles the steps that it
    runs there.
    """

    def __init__(self, steps: tuple[int, int] | None, directory: str) -> None:
        """Keeps its arguments; the profiler starts with the first call that is to be profiled.

        Args:
          steps: the two global steps; None for no profile.
          directory: the profile is written to its `plugins/profile`.
        """
        self._steps = steps
        self._directory = directory
        self._is_on = False

    def next_step(self, step: int) -> int | None:
        """Returns the next step that a loop must end on, after `step`; None if there is none."""
        if self._steps is None:
            return None
        return next((end for end in self._steps if end > step), None)

    def call(self, step: int, num_steps: int) -> contextlib.AbstractContextManager:
        """Returns a context manager for the session call that starts at `step`."""
        if self._steps is None or not self._steps[0] <= step < self._steps[1]:
            return _NOTHING
        return self._profiled(step + num_steps)

    @contextlib.contextmanager
    def _profiled(self, step: int) -> Iterator[None]:
        if not self._is_on:
            self._start()
        # The profiler shows each such trace as one step.
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            yield
        if self._steps is not None and step >= self._steps[1]:
            self.close()

    def _start(self) -> None:
        try:
            tf.profiler.experimental.start(self._directory)
        except tf.errors.AlreadyExistsError:
            log.warning(
                "`profile_steps` (%s): there will be no profile, as another profiler is running.",
                self._steps,
            )
            self._steps = None
        else:
            self._is_on = True

    def close(self) -> None:
        """Stops the profiler, if it runs, and writes the profile."""
        if self._is_on:
            self._is_on, self._steps = False, None
            tf.profiler.experimental.stop()
            console.say("The profile is in %s/plugins/profile.", self._directory)
