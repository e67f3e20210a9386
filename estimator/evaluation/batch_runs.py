"""Runs the batches of an evaluation or a prediction in a warm session."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.evaluation.batch_filler import limited, padded
from estimator.evaluation.host_input import HostInput
from estimator.evaluation.warm_session import WarmSession
from estimator.program.programs import EvalProgram, FedProgram, PredictProgram
from estimator.session.hooked_session import Hook, HookedSession


def run_evaluation(
    warm: WarmSession, host_input: HostInput, steps: int | None, hooks: Sequence[Hook]
) -> dict[str, Any]:
    """Evaluates up to `steps` global batches, each example once.

    Args:
      warm: a session on an EvalProgram, with weights restored.
      host_input: yields one batch for each replica and step.
      steps: the maximum number of steps; None for all.
      hooks: hooks called around each step.

    Returns:
      The metrics by name, and "loss". Types that NumPy lacks, such as bfloat16, become float32.

    Raises:
      ValueError: no batch was evaluated, or the dataset is infinite and nothing stops it.
    """
    program = warm.program
    assert isinstance(program, EvalProgram)
    warm.reset_metrics()
    must_end = steps is None and not hooks
    outputs = [[loss] for loss in program.losses]
    total, weight = 0.0, 0.0
    with (
        program.runtime.restarting_after_failure(),
        host_input.opened(must_end, bool(hooks)) as (source, batches),
    ):
        session = warm.hooked(hooks, source)
        groups = _groups(limited(batches, steps, host_input.batches_per_step), program)
        group: list[list[np.ndarray]] = []
        is_over = False
        while not (is_over or session.should_stop) and (following := next(groups, None)):
            group = following
            losses, is_over = _run_group(session, program, group, outputs, program.updates)
            for (loss,) in losses:
                if program.padding is not None:
                    total, weight = total + float(loss[0]), weight + float(loss[1])
                    continue
                # A scalar counts once for each batch, as in tf.estimator; a vector once for each
                # example.
                total += float(np.sum(_in_numpy(loss)))
                weight += np.size(loss)
        if weight == 0:
            raise ValueError(
                "No batch was evaluated: the dataset of `input_fn` is empty, or a hook ended the "
                "evaluation before the first batch. Check the dataset's files and filters."
            )
        values = warm.session.run(program.values, _last_batch(program, group))
        results = {name: tf.nest.map_structure(_in_numpy, v) for name, v in values.items()}
        warm.flush_writers()
        session.end()
    results["loss"] = np.float32(total / weight)
    return {name: results[name] for name in sorted(results)}


def run_prediction(
    warm: WarmSession, host_input: HostInput, keys: Sequence[str] | None, hooks: Sequence[Hook]
) -> Generator[Any, None, None]:
    """Yields the predictions of each batch, in order: an array or a dict of arrays."""
    program = warm.program
    assert isinstance(program, PredictProgram)
    wanted = [_only(predictions, keys) for predictions in program.predictions]
    outputs = [tf.nest.flatten(predictions) for predictions in wanted]
    with (
        program.runtime.restarting_after_failure(),
        host_input.opened(has_hooks=bool(hooks)) as (source, batches),
    ):
        session = warm.hooked(hooks, source)
        groups = _groups(batches, program)
        while not session.should_stop and (group := next(groups, None)):
            shown = wanted[0] if len(group) == 1 else None
            results, is_over = _run_group(session, program, group, outputs, program.host_ops, shown)
            if is_over:
                break
            for structure, flat, batch in zip(wanted, results, group, strict=False):
                if _has_rows(program, batch):
                    yield tf.nest.pack_sequence_as(structure, flat)
        warm.flush_writers()
        session.end()


def _groups(
    batches: Iterator[list[np.ndarray]], program: FedProgram
) -> Iterator[list[list[np.ndarray]]]:
    """Groups batches by step; the last group may have fewer, unless batches are padded."""
    num_replicas = len(program.feeds)
    if program.padding is not None:
        batches = padded(batches, program.padding, num_replicas)
    while group := list(itertools.islice(batches, num_replicas)):
        yield group


def _has_rows(program: FedProgram, batch: list[np.ndarray]) -> bool:
    """Returns whether a batch has real rows; at the end, idle replicas are fed padding only."""
    return program.padding is None or batch[-2] > 0


def _run_group(
    session: HookedSession,
    program: FedProgram,
    group: list[list[np.ndarray]],
    outputs: Sequence[list[tf.Tensor]],
    side_ops: Sequence[list[Any]],
    original: Any = None,
) -> tuple[list[list[Any]], bool]:
    """Runs the replicas that have a batch.

    Returns the values of each one's outputs, and whether a hook, or an op, says that its own input
    is at its end, as tf.estimator has it. If an op says so, or a hook before the call, there are no
    values.

    Args:
      session: makes the call.
      program: the program of the session.
      group: a batch for each replica that is to run.
      outputs: for each replica, the tensors to fetch.
      side_ops: for each replica, what it also runs if its batch has real rows.
      original: what hooks find as the call's own fetches; None for a list of them.
    """
    used = range(len(group))
    fetches: list[Any] = [tensor for i in used for tensor in outputs[i]]
    for i in used:
        if _has_rows(program, group[i]):
            fetches += [getattr(op, "op", op) for op in side_ops[i]]
    feeds = [feed for i in used for feed in program.feeds[i]]
    values = [value for batch in group for value in batch]
    results: list[Any] = []
    is_over = False
    try:
        session.run(fetches, feeds, values, before_hooks=results.extend, original=original)
    except (tf.errors.OutOfRangeError, StopIteration):
        is_over = True
    flat = iter(results)
    return [list(itertools.islice(flat, len(outputs[i]))) for i in used if results], is_over


def _last_batch(program: EvalProgram, group: list[list[np.ndarray]]) -> dict[tf.Tensor, np.ndarray]:
    """Returns the last batches, for metrics that are computed from one; nothing if none is."""
    if not program.reads_batch:
        return {}
    # In the last step, some replicas may have no batch.
    full = [*group, *[group[-1]] * (len(program.feeds) - len(group))]
    pairs = zip(itertools.chain(*program.feeds), itertools.chain(*full), strict=True)
    return dict(pairs)


def _in_numpy(value: Any) -> Any:
    """Converts a value to float32 if NumPy has no such type.

    NumPy does not treat bfloat16 as a number, so users would not see it, and sums of it have only 8
    bits.
    """
    return np.float32(value) if np.asarray(value).dtype.kind == "V" else value


def _only(predictions: Any, keys: Sequence[str] | None) -> Any:
    if keys is None:
        return predictions
    return {key: predictions[key] for key in keys}
