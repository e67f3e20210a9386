"""Reports training progress to the terminal, to TensorBoard, and to `metrics.jsonl`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
import sys

import tensorflow as tf

from estimator import _tf, console
from estimator.checkpoint import files
from estimator.cluster.server import task_name
from estimator.config.batch_size import batch_in_words
from estimator.config.loop_length import loop_in_words
from estimator.runtime.strategy import replicas_in_words
from estimator.summary.event_writer import EventWriter
from estimator.summary.metrics_log import MetricsLog
from estimator.training.open_training import OpenTraining
from estimator.training.progress_bar import ProgressBar


@dataclasses.dataclass(frozen=True)
class Span:
    """The range of steps of a training run.

    Attributes:
      first_step: the global step that it starts from.
      last_step: the step at which it stops at the latest; None if unknown.
      checkpoint: the path of the restored checkpoint; None if nothing was restored.
    """

    first_step: int
    last_step: int | None
    checkpoint: str | None

    def __str__(self) -> str:
        """Returns, for example, "from step 100 (model.ckpt-100) to 1,000"."""
        restored = f" ({os.path.basename(self.checkpoint)})" if self.checkpoint else ""
        end = "the end of the input" if self.last_step is None else f"{self.last_step:,}"
        return f"from step {self.first_step:,}{restored} to {end}"


class TrainReport:
    """Reports the start, the progress and the end of a training run.

    In a cluster, tasks other than the chief only print when they start and stop.
    On a terminal, a progress bar replaces the progress lines.
    """

    def __init__(self, training: OpenTraining, span: Span, events: EventWriter) -> None:
        """Creates a report; entering it prints the first line.

        Args:
          training: the training run to report.
          span: the steps of the training run.
          events: the event file that the speed is written to.
        """
        self._config, self._program = training.config, training.program
        self._request = training.request
        self._span = span
        self._events = events
        self._clock = training.request.clock
        self._model_dir = str(training.config.model_dir)
        self._metrics = MetricsLog(self._model_dir)
        self._bar: ProgressBar | None = None
        self._stack = contextlib.ExitStack()
        self._began = self._told = self._clock(), span.first_step

    def __enter__(self) -> TrainReport:
        """Prints what starts, and draws the progress bar on a terminal."""
        span = self._span
        if self._config.is_chief:
            self._metrics.resume_from(span.first_step)
            console.say("Training in %s %s: %s", self._model_dir, span, self._how())
            if self._config.log_step_count_steps is not None and console.is_terminal():
                self._bar = ProgressBar(span.first_step, span.last_step)
                self._stack.enter_context(console.rewriting(self._bar))
                self._stack.callback(self._bar.close)
        else:
            console.say("%s trains %s", self._task(), span)
        self._began = self._told = self._clock(), span.first_step
        return self

    def __exit__(self, *error: object) -> None:
        """Removes the progress bar."""
        self._stack.close()

    def advance(self, step: int, loss: float | None) -> None:
        """Updates the progress bar; called after every session call, so it must be cheap."""
        if self._bar is not None:
            self._bar.advance(step, loss)

    def tell(self, step: int, loss: float | None) -> None:
        """Reports the speed and the loss; called every `log_step_count_steps`."""
        steps_per_sec = self._speed_since(self._told, step)
        self._told = self._clock(), step
        speeds = {"global_step/sec": steps_per_sec}
        if self._request.batch_size is not None:
            accumulation = self._program.accumulation
            num_batches = 1 if accumulation is None else accumulation.size
            speeds["examples/sec"] = steps_per_sec * num_batches * self._request.batch_size
        self._events.write_scalars(speeds, step)
        if not self._config.is_chief:
            return
        self._metrics.write_train(step, loss, steps_per_sec)
        if self._bar is None:
            console.say("%s", self._progress(step, loss, steps_per_sec))

    def end(self, step: int, loss: float | None, reason: str) -> None:
        """Prints where and why training stopped, the last checkpoint, and how to see the results.

        Tasks other than the chief print the step, the reason and the duration only.
        """
        num_steps, secs = step - self._span.first_step, self._clock() - self._began[0]
        made = f"{num_steps:,} steps in {_clock_time(secs)}"
        if not self._config.is_chief:
            console.say("%s stopped at step %s (%s): %s", self._task(), f"{step:,}", reason, made)
            return
        if step > self._told[1] and reason != "nan loss":
            self._metrics.write_train(step, loss, self._speed_since(self._told, step))
        self._stack.close()
        speed = _short(self._speed_since(self._began, step))
        parts = [made, f"{speed} steps/s", *_loss(loss)]
        console.say(
            "Training stopped at step %s (%s): %s. Checkpoint: %s\nTensorBoard: %s",
            f"{step:,}",
            f"{reason}{self._beyond(step)}",
            ", ".join(parts),
            files.latest_checkpoint(self._model_dir) or "none",
            tensorboard_command(self._model_dir),
        )

    def _beyond(self, step: int) -> str:
        """Explains why training went beyond its last step; "" if it did not."""
        if self._span.last_step is None or step <= self._span.last_step:
            return ""
        return "; each worker that shares variables may make one more step"

    def _task(self) -> str:
        """Returns this task's name, capitalized to start a sentence."""
        cluster = self._config.cluster
        return task_name(str(cluster.task_type), cluster.task_id).capitalize()

    def _how(self) -> str:
        program = self._program
        accumulation, num_replicas = program.accumulation, program.runtime.num_replicas
        batch = self._request.batch or batch_in_words(program.input.batch_size, num_replicas)
        batches = "" if accumulation is None else f"{accumulation.size:,} batches"
        of_a_step = " of ".join(filter(None, [batches, batch]))
        loop, last_step = self._config.iterations_per_loop, self._span.last_step
        if not isinstance(loop, str) and last_step is not None:
            loop = max(1, min(loop, int(last_step) - self._span.first_step))
        parts = [
            f"{loop_in_words(loop)} a session call",
            replicas_in_words(program.runtime.strategy),
            f"{of_a_step} a step" if of_a_step else "",
        ]
        return ", ".join(filter(None, parts))

    def _speed_since(self, then: tuple[float, int], step: int) -> float:
        return (step - then[1]) / max(self._clock() - then[0], 1e-9)

    def _progress(self, step: int, loss: float | None, steps_per_sec: float) -> str:
        last_step = self._span.last_step
        parts = [*_loss(loss), f"{_short(steps_per_sec)} steps/s"]
        # Workers that share variables on ps tasks may each run one step beyond the last.
        if last_step is None or step > last_step:
            return f"step {step:,}: {', '.join(parts)}"
        if steps_per_sec > 0:
            parts.append(f"{_clock_time((last_step - step) / steps_per_sec)} left")
        return f"step {step:,} of {last_step:,}: {', '.join(parts)}"


class SavesInEvents(tf.compat.v1.train.CheckpointSaverListener):
    """Records in the event file which steps were saved, and loses no event of a saved step."""

    def __init__(self, events: EventWriter, graph: tf.Graph) -> None:
        """Creates a listener that writes to `events`.

        Adds ops to `graph` that flush the file writers of its `tf.summary` ops: each holds ten
        events back.
        """
        self._events = events
        self._flush = _tf.build_flush_of_writers(graph)

    def before_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Flushes what was written until this step, which a run that resumes does not repeat."""
        if global_step_value == 0:
            return  # Nothing is written before the first step.
        if self._flush is not None:
            session.run(self._flush)
        self._events.flush()

    def after_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Records the step of the checkpoint."""
        del session
        self._events.write_save(files.PREFIX, global_step_value)


def tensorboard_command(model_dir: str) -> str:
    """Returns a shell command that starts TensorBoard on `model_dir` in this Python environment."""
    beside = os.path.join(os.path.dirname(sys.executable), "tensorboard")
    found = shutil.which("tensorboard")
    is_ours = found is not None and os.path.realpath(found) == os.path.realpath(beside)
    command = "tensorboard" if is_ours else f"{shlex.quote(sys.executable)} -m tensorboard.main"
    return f"{command} --logdir {shlex.quote(model_dir)}"


def _loss(loss: float | None) -> list[str]:
    return [] if loss is None else [f"loss {loss:.4g}"]


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _clock_time(secs: float) -> str:
    """Formats a duration, such as 1.3 s, 0:12 or 1:00:00."""
    if secs < 9.95:
        return f"{secs:.1f} s"
    minutes, secs = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"
