"""Writes, logs and returns the results of `evaluate` and `predict`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.config.cluster import EVALUATOR
from estimator.config.run_config import RunConfig
from estimator.console import say
from estimator.summary.event_writer import EventWriter
from estimator.summary.metrics_log import MetricsLog, metrics_in_words

_NOT_DENSE = (tf.compat.v1.SparseTensorValue, tf.compat.v1.ragged.RaggedTensorValue)


def write_evaluation(
    results: Mapping[str, Any],
    what: str,
    name: str | None,
    eval_dir: str,
    config: RunConfig,
    checkpoint_path: str | None,
) -> None:
    """Writes the results of an evaluation for TensorBoard and other programs, and logs them.

    In a cluster only the chief and the evaluator write, because all tasks share one directory.

    Args:
      results: the metrics, "loss" and "global_step".
      what: describes what was evaluated.
      name: the name of the evaluation.
      eval_dir: the directory of its event file.
      config: the config, with its `model_dir` filled in.
      checkpoint_path: the path of the checkpoint that was evaluated, if any.
    """
    if not _is_telling(config):
        return
    step = results["global_step"]
    EventWriter(eval_dir).write_metrics(
        {k: v for k, v in results.items() if k != "global_step"}, step, checkpoint_path
    )
    MetricsLog(str(config.model_dir)).write_eval(name, step, results)
    what = f"{what} ({name})" if name else what
    say("Evaluated %s: %s", what, metrics_in_words(results))


def say_what_predicts(path: str, config: RunConfig) -> None:
    """Logs which checkpoint is used for predictions."""
    if _is_telling(config):
        say("Predicting with %s", path)


def _is_telling(config: RunConfig) -> bool:
    """Returns whether this task reports evaluations and predictions."""
    return config.is_chief or config.task_type == EVALUATOR


def rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Splits batches of predictions into examples."""
    for batch in batches:
        _check_first_dimensions(batch)
        if not isinstance(batch, Mapping):
            yield from batch
            continue
        keys = list(batch)
        columns = zip(*batch.values(), strict=True)
        yield from [dict(zip(keys, row, strict=True)) for row in columns]


def _check_first_dimensions(batch: Any) -> None:
    """Raises an error unless all arrays of a batch of predictions have the same number of rows."""
    way_out = "so they cannot be taken apart into examples. Pass `yield_single_examples=False`"
    named = batch if isinstance(batch, Mapping) else {"predictions": batch}
    for key, value in named.items():
        if isinstance(value, _NOT_DENSE):
            raise ValueError(
                f"The predictions are sparse or ragged ({key}), {way_out}, or make them dense with "
                "tf.sparse.to_dense or `to_tensor`."
            )
    rows = {np.shape(value)[:1] for value in named.values()}
    if len(rows) > 1 or () in rows:
        what = "different first dimensions" if len(rows) > 1 else "no first dimension"
        shapes = ", ".join(f"{key}: {np.shape(value)}" for key, value in named.items())
        raise ValueError(f"The predictions have {what} ({shapes}), {way_out}.")
