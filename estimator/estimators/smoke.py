"""Smoke runs: two steps of every method, to check that a program works, leaving nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import Any

from estimator.config.run_config import RunConfig

STEPS = 2


def make_scratch_dir(owner: Any) -> str:
    """Makes a directory that is removed when `owner` is deleted, or when the process ends."""
    path = tempfile.mkdtemp(prefix="smoke-")
    weakref.finalize(owner, shutil.rmtree, path, ignore_errors=True)
    return path


def make_config(config: RunConfig, scratch_dir: str) -> RunConfig:
    """Returns the config of a smoke run, in which every step writes all that is ever written."""
    every_step = {
        name: 1
        for name in ("save_summary_steps", "log_step_count_steps")
        if getattr(config, name) is not None
    }
    return config.replace(model_dir=scratch_dir, **every_step)


def limit_training(
    steps: int | None, max_steps: int | None, start: int
) -> tuple[int | None, int | None]:
    """Limits `steps` and `max_steps` of a `train` call that starts at the global step `start`."""
    if max_steps is not None:
        return None, min(max_steps, start + STEPS)
    return STEPS if steps is None else min(steps, STEPS), None


def make_export_dir(export_dir_base: str | bytes | os.PathLike, scratch_dir: str) -> str:
    """Returns the directory to use instead of `export_dir_base`."""
    name = os.path.basename(os.path.abspath(os.fsdecode(export_dir_base)))
    return os.path.join(scratch_dir, "export", name)
