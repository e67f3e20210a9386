"""Builds the library's only `tf.while_loop`: many train steps in one session call."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator

import tensorflow as tf

from estimator import _tf
from estimator.model.failure_hints import ImportedInLoopError
from estimator.model.uncached_reads import without_cached_reads
from estimator.program.step_plan import StepPlan
from estimator.program.train_step import BuiltStep, build_train_step


def build_loop(plan: StepPlan, num_steps: tf.Tensor) -> tuple[BuiltStep, tf.Tensor]:
    """Runs a train step `num_steps` times, or until its loss is not finite or no other may follow.

    A loop that runs ahead, see `BuiltStep.ahead_on`, stops one step after a loss that is not
    finite, and returns that loss.

    A step starts on a task after the previous one has ended there: with `parallel_iterations=1`,
    and the loop depending on everything that a step does, two steps never touch the variables at
    the same time, and an input that ends leaves only whole steps.

    On a GPU, a bool is in the device's memory and an int32 in the host's. So whether to go on is an
    int32: as a bool, it would be copied to the device and back in every step.

    If a step's `is_before_end` is on another task, that task, the plan's `home_of_loop`, decides
    whether to go on. The next step then starts with its reads there, without waiting for two more
    messages, one that the step is done and one to go on.

    Args:
      plan: what each step is built from.
      num_steps: scalar, int32; fed, so that one graph runs loops of any length.

    Returns:
      The step of the loop's body, in which `loss` and `has_more` are replaced by those of the last
      step that was run, outside of the loop; `has_more` is None for a single worker. And the
      number of steps run (scalar, int32).
    """
    home = plan.home_of_loop
    bodies: list[BuiltStep] = []
    devices = _tf.note_devices()
    with tf.name_scope("training/"):
        rest = [tf.constant(0), tf.constant(0.0), *_build_has_batches(plan)]

    def build_body(
        goes_on: tf.Tensor, step: tf.Tensor, loss_before: tf.Tensor, *_: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        with devices(), _building_in(step.graph):
            with tf.name_scope("training/"):
                next_step = step + 1
                with tf.device("/cpu:0"):
                    is_last = tf.equal(next_step, num_steps)
            built = build_train_step(plan, is_last)
            with tf.device("/cpu:0"):
                checked = built.loss if built.ahead_on is None else loss_before
                goes_on = _build_goes_on(plan, built, is_last, checked)
                more = [tf.cast(built.has_more, tf.int32)] if plan.consensus else []
        if home is not None:
            _place_unplaced(step.graph, rest[0].device)
        if built.is_before_end is not None:
            with tf.device("/cpu:0"):
                goes_on *= tf.cast(built.is_before_end, tf.int32)
        bodies.append(built)
        with devices():
            loss = _build_kept_loss(plan, built, loss_before)
        return goes_on, next_step, loss, *more

    with _placing_at(home):
        went_on, num_run, loss, *more = _tf.while_loop(
            lambda goes_on, *_: tf.less(0, goes_on),
            build_body,
            [tf.minimum(num_steps, 1, "training/goes_on"), *rest],
            parallel_iterations=1,
            back_prop=False,
            name="train_loop",
            return_same_structure=True,
        )
    built = dataclasses.replace(bodies[0], loss=loss)
    with tf.device("/cpu:0"):
        if plan.consensus:
            built = dataclasses.replace(built, has_more=tf.cast(more[0], tf.bool))
        if built.ahead_on is not None:
            built = dataclasses.replace(built, num_uncounted=tf.maximum(-went_on, 0))
            num_run -= built.num_uncounted
    return built, num_run


@contextlib.contextmanager
def _building_in(body: tf.Graph) -> Iterator[None]:
    """Inside, a model can be built in a loop's body; to import a meta graph there is an error."""
    refused = ImportedInLoopError(
        "`model_fn` imports a meta graph, as hub.Module does. In a loop of steps, no session could "
        "initialize its variables."
    )
    with (
        _tf.names_shared(body),
        _tf.tf_keras_constants_in_graph(),
        _tf.meta_graphs_refused(body, refused),
        without_cached_reads(),
    ):
        yield


def _build_has_batches(plan: StepPlan) -> list[tf.Tensor]:
    """Builds whether all of several workers have a batch for the loop: [scalar, int32]."""
    with tf.device("/cpu:0"):
        return [tf.minimum(plan.consensus.agreed[0], 1)] if plan.consensus else []


def _build_goes_on(
    plan: StepPlan, built: BuiltStep, is_last: tf.Tensor, loss: tf.Tensor
) -> tf.Tensor:
    """Builds whether this task wants another step after this one: scalar, int32.

    It is 1 if so, 0 if not, and -1 if not because the loss of the step before is not finite.

    Args:
      plan: what the step is built from.
      built: the step.
      is_last: scalar, bool: whether it is the last that the session call asks for.
      loss: scalar, float32: the loss that must be finite, of this step or the one before.
    """
    conditions = [tf.logical_not(is_last)]
    if built.has_more is not None:
        conditions.append(built.has_more)
    if not _stops_on_nan(plan):
        return tf.cast(functools.reduce(tf.logical_and, conditions), tf.int32)
    is_finite = tf.math.is_finite(loss)
    goes_on = tf.cast(functools.reduce(tf.logical_and, [*conditions, is_finite]), tf.int32)
    return goes_on if built.ahead_on is None else goes_on + tf.cast(is_finite, tf.int32) - 1


def _build_kept_loss(plan: StepPlan, built: BuiltStep, loss_before: tf.Tensor) -> tf.Tensor:
    """Returns the loss of the step, or that of the step before if the loop ends because of it."""
    if built.ahead_on is None or not _stops_on_nan(plan):
        return built.loss
    with tf.device(built.ahead_on):
        return tf.where(tf.math.is_finite(loss_before), built.loss, loss_before)


def _stops_on_nan(plan: StepPlan) -> bool:
    return plan.nan_policy in ("raise", "stop")


def _placing_at(home: str | None) -> contextlib.AbstractContextManager[None]:
    """Inside, a loop's own ops are placed at `home`, but its results stay where they were made."""
    if home is None:
        return contextlib.nullcontext()

    def place(op: tf.Operation) -> str:
        return op.device if op.type in ("Identity", "StopGradient") else home

    return tf.compat.v1.device(place)


def _place_unplaced(body: tf.Graph, device: str) -> None:
    """Places what `tf.device(None)` has left without a task, which would run on the loop's."""
    own = tf.DeviceSpec.from_string(device)
    for op in body.get_operations():
        given = tf.DeviceSpec.from_string(op.device or "")
        if given.job is None and op.type != "Placeholder":
            _tf.set_device(op, given.make_merged_spec(own).to_string())
