"""Writes the programs of an export, with a checkpoint's weights, as one SavedModel."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from estimator.checkpoint import files
from estimator.checkpoint.saver_ops import restored_names, saved_names
from estimator.checkpoint.writer import build_saver
from estimator.export.saved_model import GraphToSave, write_saved_models
from estimator.export.signatures import make_signatures, make_supervised_signatures
from estimator.program.export_program import ExportProgram
from estimator.session.opening import Setup, build_setup, build_start, opened
from estimator.spec import ModeKeys
from estimator.spec.outputs import EvalOutput, SupervisedOutput, TrainOutput

_SUPERVISED: Mapping[str, type[SupervisedOutput]] = {
    ModeKeys.EVAL: EvalOutput,
    ModeKeys.TRAIN: TrainOutput,
}


def run_export(
    programs: Sequence[ExportProgram],
    export_dir_base: str,
    checkpoint_paths: Sequence[str],
    *,
    session_config: tf.compat.v1.ConfigProto,
    assets_extra: Mapping[str, str] | None,
    as_text: bool,
    strip_default_attrs: bool,
) -> bytes:
    """Writes the SavedModel; returns the path of its numbered directory.

    Args:
      programs: the programs; the first one has all variables, which the others share.
      export_dir_base: the parent of the numbered directory.
      checkpoint_paths: paths of checkpoints, newest first.
      session_config: the config of the session that restores the checkpoint.
      assets_extra: files to copy into `assets.extra`.
      as_text: whether to write the graphs as text.
      strip_default_attrs: whether to omit attributes that have default values.

    Raises:
      ValueError: no checkpoint fits a program, a program has a variable that the first lacks, or
        there is no signature. In that case nothing is written.
    """
    prepared = [_prepare(program, session_config) for program in programs]
    with opened(prepared[0].setup, checkpoint_paths) as (session, path):
        for graph in prepared[1:]:
            _check_shared(path, prepared[0], graph)
        return write_saved_models(
            export_dir_base,
            _graphs(prepared, session),
            assets_extra=assets_extra,
            as_text=as_text,
            strip_default_attrs=strip_default_attrs,
        )


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """A program, with its setup and signatures."""

    program: ExportProgram
    setup: Setup
    signatures: dict
    main_op: tf.Operation


def _prepare(program: ExportProgram, session_config: tf.compat.v1.ConfigProto) -> _Prepared:
    setup = build_setup(
        build_start(program.graph, program.spec.scaffold, build_saver),
        session_config,
        is_evaluation=program.mode == ModeKeys.EVAL,
    )
    # Neither an export nor its loader opens the file writers of the model's summaries.
    writers = program.graph.get_collection("_SUMMARY_WRITER_V2")
    local = [[op for op in ops if op not in writers] for ops in setup.local_init_ops]
    setup = dataclasses.replace(setup, local_init_ops=local, must_be_ready=False)
    with program.graph.as_default():
        return _Prepared(program, setup, _make_signatures(program), tf.group(*local))


def _graphs(
    prepared: Sequence[_Prepared], first_session: tf.compat.v1.Session
) -> Iterator[GraphToSave]:
    for graph in prepared:
        with contextlib.ExitStack() as stack:
            session = first_session
            if graph is not prepared[0]:  # Only the first graph's values are written.
                session = tf.compat.v1.Session(graph=graph.program.graph)
                stack.callback(session.close)
            yield GraphToSave(
                session=session,
                signatures=graph.signatures,
                tags=(_tag(graph.program.mode),),
                saver=graph.setup.saver,
                main_op=graph.main_op,
                train_op=graph.program.train_op,
            )


def _tag(mode: str) -> str:
    if mode in _SUPERVISED:
        return _SUPERVISED[mode].key
    return tf.compat.v1.saved_model.tag_constants.SERVING


def _make_signatures(program: ExportProgram) -> dict:
    spec = program.spec
    if program.mode == ModeKeys.PREDICT:
        return make_signatures(program.receiver, spec.predictions, spec.export_outputs)
    make_output = _SUPERVISED[program.mode]
    output = make_output(program.loss, spec.predictions, program.metrics or None)
    return make_supervised_signatures(program.receiver, output)


def _check_shared(path: str | None, first: _Prepared, other: _Prepared) -> None:
    """Raises an error unless the first graph's variables suffice for another graph."""
    graph = other.program.graph
    if other.setup.is_saver_ours and path is not None:
        lacking = {v.name for v in files.missing_variables(path, other.setup.may_lack)}
        variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        files.check_matches(path, [v for v in variables if v.name not in lacking])
    saved = saved_names(first.program.graph, first.setup.saver)
    if missing := sorted(restored_names(graph, other.setup.saver) - saved):
        raise ValueError(
            f"The graph of mode {other.program.mode!r} has variables that the graph of mode "
            f"{first.program.mode!r} lacks ({', '.join(missing)}), but a SavedModel holds those of "
            "its first graph alone. Make them in both modes, or export each mode by itself."
        )
