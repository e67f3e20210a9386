"""Checks of what exporters are made with and called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from estimator.config.checks import check_instance, check_no_pattern, leads_out, parameters_of

_COMPARE_ARGUMENTS = ("best_eval_result", "current_eval_result")


def check_exporter_name(name: str) -> None:
    """Raises an error unless `name` is the name of a directory inside another."""
    if not name or leads_out(name):
        raise ValueError(
            f"`name` ({name!r}) must name a directory inside `<model_dir>/export`, such as 'best'."
        )
    check_no_pattern("name", name)


def check_compare_fn(compare_fn: Any) -> None:
    """Raises an error unless `compare_fn` can be called with the results of two evaluations."""
    rule = (
        f"a function that takes {' and '.join(_COMPARE_ARGUMENTS)} and returns whether the "
        "current one is better"
    )
    check_instance("compare_fn", compare_fn, Callable, rule)
    parameters_of("compare_fn", compare_fn)
    signature = inspect.signature(compare_fn)
    try:
        signature.bind(**dict.fromkeys(_COMPARE_ARGUMENTS))
    except TypeError as error:
        raise ValueError(f"`compare_fn` must be {rule}; it takes {signature}: {error}.") from error


def check_evaluated(checkpoint_path: Any, eval_result: Any) -> None:
    """Raises an error if an exporter is called without an evaluation."""
    if checkpoint_path is None:
        raise ValueError(
            "`checkpoint_path` (None) must be the path of the checkpoint that was evaluated. Pass "
            "`estimator.latest_checkpoint()` for the newest."
        )
    check_instance(
        "eval_result",
        eval_result,
        Mapping,
        "the metrics of the evaluation, a dict by name. Pass what `estimator.evaluate` returned",
    )
