"""Makes the session calls of training: one for a loop, or one for each batch."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from estimator.console import log
from estimator.hooks.stock_hooks_in_loops import StockHookSchedule
from estimator.training.loop_autotuner import LoopAutotuner
from estimator.training.open_training import OpenTraining

# Steps that do not advance the global step are no error before both limits are reached: a hook, or
# a branch that is taken now and then, may still advance it.
MANY_CALLS, MANY_STEPS = 100, 1000


class StepRunner:
    """Runs the steps of a program in a session.

    Attributes:
      step: the global step.
      loss: the loss of the last step; None before the first.
      is_cut: whether the input ended during the last call, or before it.
      has_run: whether any batch was taken so far.
      num_waiting: how many accumulated batches `complete` left for a later run.
      stock_hooks: the steps that TensorFlow's own hooks are due at.
    """

    def __init__(self, training: OpenTraining, first_step: int | None) -> None:
        """Reads the number of accumulated batches from the session.

        Args:
          training: a training run whose session is started.
          first_step: the global step; None if it is to be read from the session, too.
        """
        config = training.config
        self._training = training
        self._program = training.program
        self._session = training.session
        self._worker_group = training.worker_group
        self._autotuner = LoopAutotuner(config.iterations_per_loop)
        self._stops_on_nan = config.nan_policy in ("raise", "stop")
        self._clock = training.request.clock
        self.loss: float | None = None
        self.num_waiting = 0
        self.is_cut = False
        self.has_run = False
        self._uncounted_calls = self._uncounted_steps = 0
        self.step = training.read_step() if first_step is None else first_step
        self._num_taken = self._read_num_taken()
        self.stock_hooks = StockHookSchedule(training.request.own_hooks, self.step)

    def read_step(self) -> None:
        """Reads the global step again: others than the last call may have advanced it."""
        self.step = self._training.read_step()

    def num_steps(self) -> int:
        """Returns the largest number of steps that the next loop may have."""
        return self._autotuner.num_steps()

    def run(self, num_steps: int, is_recording: bool, end: int | None) -> bytes | None:
        """Runs a loop; returns the serialized summaries of its last step, if it recorded any.

        If `is_cut` is set afterwards, call `complete` to process the remaining batches.

        Args:
          num_steps: the number of steps.
          is_recording: whether the last step records summaries.
          end: the global step that no loop goes beyond; other workers may advance it, too.

        Raises:
          ValueError: the input of one of several workers ended, which the others cannot know.
        """
        self.is_cut = False
        accumulation, started_at = self._program.accumulation, self._clock()
        num_batches, before = num_steps, self.step
        if accumulation is not None:
            # A resumed run may accumulate fewer batches a step than have been taken already.
            num_before = min(self._num_taken, accumulation.size - 1)
            num_batches = num_steps * accumulation.size - num_before
        # How many steps each call completes, and how many batches it takes.
        calls = [(num_steps, num_batches)]
        if not self._program.is_loop:
            calls = [(0, 1)] * (num_batches - 1) + [(1, 1)]
        summary = None
        for num_completed, num_taken in calls:
            # Any of them may turn out to take the input's last batch, which completes the step.
            summary = self._call(is_recording, num_completed, num_taken, end) or summary
            if self.is_cut or self.is_nan or not self._worker_group.has_more:
                break
        if not self.is_cut:
            self._num_taken = 0
        if self.step == before and not self.is_cut:
            # A hook may have advanced it after the call.
            self.read_step()
        # Several workers run the smallest number of steps that any of them asks for.
        num_run = num_steps if self._worker_group.decides_alone else max(1, self.step - before)
        self._autotuner.record(num_run, self._clock() - started_at)
        return summary

    def check_ends(self, before: int, num_steps: int) -> None:
        """Raises ValueError if the global step never advances and the input never ends."""
        if self.step > before or not self._worker_group.is_in_lockstep:
            self._uncounted_calls = self._uncounted_steps = 0
            return
        self._uncounted_calls += 1
        self._uncounted_steps += num_steps
        is_long = self._uncounted_calls >= MANY_CALLS and self._uncounted_steps >= MANY_STEPS
        if not is_long:
            return
        num_runs, self._uncounted_calls, self._uncounted_steps = self._uncounted_steps, 0, 0
        if self._is_input_endless():
            raise ValueError(
                f"The global step is still {before} after {num_runs:,} runs of "
                "`train_op`, and the dataset of `input_fn` never ends, so training would not "
                "either. Let `train_op` run the op that increments the global step, or a hook."
            )

    def _is_input_endless(self) -> bool:
        """Returns whether the dataset is known to be infinite."""
        build_cardinality = self._program.input.build_cardinality
        if build_cardinality is None:
            return False
        with self._program.graph.as_default():
            cardinality = build_cardinality()
        return int(self._session.session.run(cardinality)) == tf.data.INFINITE_CARDINALITY

    @property
    def is_nan(self) -> bool:
        """Whether the last step's loss is not finite and `nan_policy` stops training for that."""
        return self._stops_on_nan and not math.isfinite(self.loss or 0)

    def step_of_loss(self) -> int:
        """Returns the step that `loss` belongs to, which may still be accumulating batches."""
        return self.step + bool(self._read_num_taken())

    def complete(self) -> None:
        """Completes the last step at the end of the input, with the batches accumulated so far."""
        accumulation, num_taken = self._program.accumulation, self._read_num_taken()
        if accumulation is not None and num_taken and accumulation.flushes is None:
            log.warning(
                "The input ends with %d batches of a step of %d. The optimizer needs a batch to "
                "run, as a learning rate does that is computed from one: they wait for more.",
                num_taken,
                accumulation.size,
            )
            self.num_waiting = num_taken - self._num_taken
        elif accumulation is not None and num_taken:
            self._session.session.run(accumulation.flushes)
        before = self.step
        self.read_step()
        if self._program.state.loss_so_far is not None and self.step > before:
            self.loss = float(self._session.session.run(self._program.state.loss_so_far))

    def _call(
        self, is_recording: bool, num_steps: int, num_batches: int, end: int | None
    ) -> bytes | None:
        """Makes a session call, updates the attributes, and returns the call's summaries.

        If a loop recorded no summaries, the fetch is an empty array, and None is returned. If the
        input has ended, `is_cut` is set.

        Args:
          is_recording: whether to return the summaries of the last batch.
          num_steps: how many steps the call completes; if 0, the model's summary writers do not
            write.
          num_batches: how many batches the call takes.
          end: the global step at which a loop ends, if other workers advance it, too.
        """
        program = self._program
        fetches = program.fetches.of_call(is_recording)
        feeds, values = program.feeds.of_call(num_batches, end, is_recording and num_steps > 0)
        self.stock_hooks.expect(self.step, num_steps)
        hooks = self.stock_hooks.of_call(is_end_of_step=num_steps > 0)
        outcome, more_feeds, more_values = self._worker_group.consensus_ops()
        expected = self.step + num_steps

        def take_in(results: list[Any]) -> None:
            if outcome:
                self._worker_group.take_in(results[-1])
            self._take_in(results, num_batches, end)
            if self.is_cut:
                self.stock_hooks.cut(self.step, expected)

        try:
            results = self._session.run(
                [*fetches, *outcome],
                [*feeds, *more_feeds],
                [*values, *more_values],
                hooks,
                take_in,
                # As tf.estimator has it: the step, and its loss.
                original=[program.fetches.loss.op, program.fetches.loss],
            )
        except tf.errors.OutOfRangeError as error:
            if not self._worker_group.decides_alone:
                raise ValueError(
                    "The input of this worker ended, and others may have more. An `input_fn` that "
                    "ends must return a tf.data.Dataset, of which all workers are told in time."
                ) from error
            self.is_cut = True
            return None
        except StopIteration:  # Of a hook, such as a FeedFnHook whose source has ended.
            if not self._worker_group.decides_alone:
                raise
            self.is_cut = True
            return None
        summary = results[len(fetches) - 1]
        return summary if isinstance(summary, bytes) else None

    def _take_in(self, results: list[Any], num_batches: int, end: int | None) -> None:
        """Updates the attributes from the results of a call.

        Args:
          results: the loss, the global step and, of a loop, the number of batches taken.
          num_batches: how many batches the call was to take.
          end: the global step at which the loop ends; None if it has no such limit.
        """
        loss, step, *rest = results
        # A loop of several workers is empty if one wants to stop, or has no batch for it.
        if not self._program.is_loop or rest[0] > 0:
            self.loss = float(loss)
            self.has_run = True
        self.step = int(step)
        if self._program.is_loop and self._worker_group.decides_alone:
            is_at_end = self.is_nan or (end is not None and self.step >= end)
            self.is_cut = rest[0] < num_batches and not is_at_end

    def _read_num_taken(self) -> int:
        """Returns how many batches the current step has accumulated; 0 without accumulation."""
        accumulation = self._program.accumulation
        return 0 if accumulation is None else int(self._session.session.run(accumulation.num_taken))
