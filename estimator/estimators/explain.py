"""Describes what an estimator is about to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from estimator.checkpoint.files import checkpoint_step
from estimator.config.loop_length import loop_in_words
from estimator.config.warm_start_settings import WarmStartSettings
from estimator.estimators.batches import Batches
from estimator.runtime.strategy import devices_in_words, make_runtime, replicas_in_words
from estimator.spec import ModeKeys

_INDENT = 11


@dataclasses.dataclass(frozen=True)
class Facts:
    """The facts that are known before anything is built.

    Attributes:
      title: the name of the estimator.
      batches: its batches, and its config with `model_dir` filled in.
      checkpoint: the newest checkpoint; None if there is none.
      warm_start: the source of the initial values; None for initializers.
      eval_dir: the directory of evaluations.
    """

    title: str
    batches: Batches
    checkpoint: str | None
    warm_start: WarmStartSettings | None
    eval_dir: str


def explain(facts: Facts, steps: int | None, max_steps: int | None) -> str:
    """Describes what `train(steps=..., max_steps=...)`, `evaluate` and `predict` will do.

    Raises:
      ValueError: the strategy cannot be made.
    """
    restored = facts.checkpoint or "the newest checkpoint, once there is one"
    rows_by_method = {
        "train": _train(facts, steps, max_steps),
        "evaluate": [
            f"{restored}; events in {facts.eval_dir}",
            _where_it_runs(facts, ModeKeys.EVAL),
        ],
        "predict": [restored, _where_it_runs(facts, ModeKeys.PREDICT)],
    }
    lines = [facts.title]
    for name, rows in rows_by_method.items():
        for i, row in enumerate(rows):
            lines.append(f"  {name if i == 0 else '':{_INDENT}}{row}")
    return "\n".join(lines)


def _train(facts: Facts, steps: int | None, max_steps: int | None) -> Iterator[str]:
    config = facts.batches.config
    yield _where_it_starts(facts, steps, max_steps)
    yield _where_it_runs(facts, ModeKeys.TRAIN)
    loop = config.iterations_per_loop
    cut = "" if loop == 1 else ", less where one of the following is due"
    yield f"{loop_in_words(loop)} a session call{cut}"
    if config.max_time_secs is not None:
        yield f"until {config.max_time_secs:g} s have gone by, at the latest"
    kept = config.keep_checkpoint_max
    how_many = "all are kept" if kept is None else f"the newest {kept} are kept"
    saves = _every(config.save_checkpoints_steps) or (
        f"every {config.save_checkpoints_secs:g} s" if config.save_checkpoints_secs else "only"
    )
    yield f"checkpoints {saves}{' and' if saves != 'only' else ''} at the end; {how_many}"
    yield f"summaries {_every(config.save_summary_steps) or 'never'}"
    yield f"speed and loss {_every(config.log_step_count_steps) or 'never'}"
    if config.profile_steps is not None:
        first, last = config.profile_steps
        yield f"a profile of steps {first + 1:,} to {last:,}"
    yield f'a loss that is not finite: nan_policy="{config.nan_policy}"'


def _where_it_starts(facts: Facts, steps: int | None, max_steps: int | None) -> str:
    start = 0 if facts.checkpoint is None else checkpoint_step(facts.checkpoint)
    if max_steps is not None and start is not None and start >= max_steps:
        return f"nothing: the global step is {start:,}, and `max_steps` is {max_steps:,}"
    end = max_steps if steps is None or start is None else start + steps
    to = "the end of the input" if end is None else f"step {end:,}"
    if facts.checkpoint is not None:
        place = "the input resumes" if facts.batches.config.resume_input else "the input restarts"
        return f"from {facts.checkpoint} to {to}; {place}"
    if facts.warm_start is not None:
        source = facts.warm_start.ckpt_to_initialize_from
        return f"from step 0 to {to}, with a warm start from {source}"
    return f"from step 0 to {to}"


def _where_it_runs(facts: Facts, mode: str) -> str:
    config = facts.batches.config
    runtime = make_runtime(config, mode)
    batch, strategy = facts.batches.in_words(runtime), runtime.strategy
    parts = [
        f"{replicas_in_words(strategy)} on {devices_in_words(strategy)}",
        f"batches of {batch}" if batch else "batches as `input_fn` makes them, one a replica",
        "" if config.compute_dtype == "float32" else config.compute_dtype,
        "compiled by XLA" if config.jit_compile else "",
    ]
    return "; ".join(filter(None, parts))


def _every(steps: int | None) -> str:
    return "" if steps is None else f"every {steps:,} step{'s' * (steps != 1)}"
