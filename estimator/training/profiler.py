"""A profile of some steps of a training, for the profiler of TensorBoard."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from types import TracebackType

import tensorflow as tf

from estimator import console

_log = logging.getLogger("estimator")
_NOTHING = contextlib.nullcontext()


class ProfileWindow:
    """Profiles the steps after the first of two steps, up to the second; loops end on both.

    A training that begins or ends between the two has a profile of the steps that it runs there.
    """

    def __init__(self, steps: tuple[int, int] | None, directory: str) -> None:
        """Touches nothing yet.

        Args:
          steps: the two; None for no profile.
          directory: the profile goes into its `plugins/profile`.
        """
        self._steps = steps
        self._directory = directory
        self._is_on = False

    def next_step(self, step: int) -> int | None:
        """The first step after `step` that it waits for; None if there is none."""
        if self._steps is None:
            return None
        return next((end for end in self._steps if end > step), None)

    def call(self, step: int, num_steps: int) -> contextlib.AbstractContextManager:
        """What is around the session call that goes on from `step`."""
        if self._steps is None or not self._steps[0] <= step < self._steps[1]:
            return _NOTHING
        return self._profiled(step + num_steps)

    @contextlib.contextmanager
    def _profiled(self, step: int) -> Iterator[None]:
        if not self._is_on:
            self._start()
        # The profiler shows the time of each such part as that of a step.
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            yield
        if self._steps is not None and step >= self._steps[1]:
            self.stop()

    def _start(self) -> None:
        try:
            tf.profiler.experimental.start(self._directory)
        except tf.errors.AlreadyExistsError:
            _log.warning(
                "`profile_steps` (%s): there will be no profile, as another profiler is running.",
                self._steps,
            )
            self._steps = None
        else:
            self._is_on = True

    def stop(self) -> None:
        """Writes the profile of the steps that have run, if there are some."""
        if self._is_on:
            self._is_on, self._steps = False, None
            tf.profiler.experimental.stop()
            console.say("The profile is in %s/plugins/profile.", self._directory)

    def __enter__(self) -> ProfileWindow:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops."""
        self.stop()
