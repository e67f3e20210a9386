"""Opens the session of an export, and makes the graphs to save from its programs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import same_model
from estimator.checkpoint.saver_ops import restored_names, saved_names
from estimator.checkpoint.writer import build_saver
from estimator.export.saved_model import GraphToSave
from estimator.export.signatures import make_signatures, make_supervised_signatures
from estimator.program.export_program import ExportProgram
from estimator.session.opening import Setup, build_setup, build_start, opened
from estimator.spec import ModeKeys
from estimator.spec.outputs import EvalOutput, TrainOutput


@contextlib.contextmanager
def opened_export(
    programs: Sequence[ExportProgram],
    checkpoint_paths: Sequence[str],
    session_config: tf.compat.v1.ConfigProto,
    find_paths: Callable[[], Sequence[str]] | None = None,
) -> Iterator[tuple[tf.compat.v1.Session, list[GraphToSave]]]:
    """Opens a session on the first graph, with a checkpoint's weights.

    Args:
      programs: the programs; the first one has all variables, which the others share.
      checkpoint_paths: paths of checkpoints, newest first.
      session_config: the config of the session.
      find_paths: see `restore_first`.

    Yields:
      The session, and the graphs to save.

    Raises:
      ValueError: no checkpoint fits a program, a program has a variable that the first lacks, or
        there is no signature.
    """
    prepared = [_prepare(program, session_config) for program in programs]
    first, *others = prepared
    with opened(first.setup, checkpoint_paths, find_paths=find_paths) as (session, path):
        for other in others:
            _check_shared(path, first, other)
        yield session, [one.to_save for one in prepared]


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """A program, with its setup and what is written of it."""

    program: ExportProgram
    setup: Setup
    to_save: GraphToSave


def _prepare(program: ExportProgram, session_config: tf.compat.v1.ConfigProto) -> _Prepared:
    had_saver = program.graph.get_collection(tf.compat.v1.GraphKeys.SAVERS)
    start = build_start(program.graph, program.spec.scaffold, build_saver)
    if not had_saver:
        # A graph that the export is loaded into would take its saver for that of all variables.
        program.graph.clear_collection(tf.compat.v1.GraphKeys.SAVERS)
    setup = build_setup(
        start,
        session_config,
        is_evaluation=program.mode == ModeKeys.EVAL,
    )
    # Neither an export nor its loader opens the file writers of the model's summaries.
    writers = _tf.writer_initializers(program.graph)
    local = [[op for op in ops if op not in writers] for ops in setup.local_init_ops]
    setup = dataclasses.replace(setup, local_init_ops=local, must_be_ready=False)
    with program.graph.as_default():
        tag, signatures = _make_signatures(program)
        main_op = tf.group(*local)
    to_save = GraphToSave(
        program.graph, signatures, tag, setup.saver, main_op, train_op=program.train_op
    )
    return _Prepared(program, setup, to_save)


def _make_signatures(program: ExportProgram) -> tuple[str, dict]:
    """Returns the tag of the graph, and its signatures by name."""
    receiver, spec = program.receiver, program.spec
    if program.mode == ModeKeys.PREDICT:
        signatures = make_signatures(receiver, spec.predictions, spec.export_outputs)
        return tf.compat.v1.saved_model.tag_constants.SERVING, signatures
    make_output = EvalOutput if program.mode == ModeKeys.EVAL else TrainOutput
    output = make_output(program.loss, spec.predictions, program.metrics or None)
    return output.key, make_supervised_signatures(receiver, output)


def _check_shared(path: str | None, first: _Prepared, other: _Prepared) -> None:
    """Raises an error unless the first graph's variables suffice for another graph."""
    graph = other.program.graph
    if other.setup.is_saver_ours and path is not None:
        lacking = {v.name for v in same_model.missing_variables(path, other.setup.may_lack)}
        variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        same_model.check_matches(path, [v for v in variables if v.name not in lacking])
    saved = saved_names(first.program.graph, first.setup.saver)
    if missing := sorted(restored_names(graph, other.setup.saver) - saved):
        raise ValueError(
            f"The graph of mode {other.program.mode!r} has variables that the graph of mode "
            f"{first.program.mode!r} lacks ({', '.join(missing)}), but a SavedModel holds those of "
            "its first graph alone. Make them in both modes, or export each mode by itself."
        )
