"""Prepares an export: its checkpoints, and a program for each mode."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from estimator.checkpoint import files
from estimator.checkpoint.old_model import find_checkpoint
from estimator.config.warm_start_settings import WarmStartSettings
from estimator.estimators import arguments
from estimator.export.receivers import call_receiver_fn
from estimator.model.replicas import Model
from estimator.program.export_program import ExportProgram, build_export_program
from estimator.runtime.local import make_plain_runtime


def checkpoints_to_export(
    checkpoint_path: str | None, directories: Sequence[str], warm_start: WarmStartSettings | None
) -> list[str]:
    """Returns the existing checkpoints, or the warm start's if nothing was trained yet."""
    if warm_start is not None:
        found = files.any_checkpoints(directories, checkpoint_path)
        return found or [find_checkpoint(str(warm_start.ckpt_to_initialize_from))]
    return files.existing_checkpoints(directories, checkpoint_path)


def build_programs(
    receiver_fns: Mapping[str, tuple[str, Callable]], make_model: Callable[[str], Model]
) -> list[ExportProgram]:
    """Builds the model for each mode.

    Args:
      receiver_fns: by mode, the receiver function and its name in errors.
      make_model: makes the model for a mode.
    """
    models = {mode: make_model(mode) for mode in arguments.MODES_TO_EXPORT if mode in receiver_fns}
    programs = []
    for mode, model in models.items():
        argument, function = receiver_fns[mode]
        receiver_fn = functools.partial(call_receiver_fn, function, argument, mode)
        runtime = make_plain_runtime(model.config, mode)  # It runs wherever it is loaded.
        programs.append(build_export_program(model, receiver_fn, runtime))
    return programs
