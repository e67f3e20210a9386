"""Exporters for `train_and_evaluate`, which export the latest, the last or the best model.

Each export holds a record of its evaluation in `assets.extra`. So a restarted run knows the best
metrics so far, and which directories an exporter may remove.
"""

from __future__ import annotations

import abc
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from estimator.checkpoint import files
from estimator.config.checks import check_instance, check_limit, check_type
from estimator.console import log
from estimator.export.directory import make_extra_assets, numbered_dirs, remove_numbered_dir
from estimator.export.exporter_checks import check_compare_fn, check_evaluated, check_exporter_name
from estimator.export.receivers import check_receiver_fn
from estimator.summary.metrics_log import scalars_of

# In `assets.extra` of an export.
_RECORD_NAME = "exporter.json"


class Exporter(abc.ABC):
    """Decides after an evaluation whether to export the model."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The directory in `<model_dir>/export`, which must be unique among exporters."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> bytes | str | None:
        """Exports the model if the exporter wants to; called after each evaluation.

        Args:
          estimator: the Estimator that was evaluated.
          export_path: the directory to export into: `<model_dir>/export/<name>`.
          checkpoint_path: the checkpoint that was evaluated.
          eval_result: what `evaluate` returned.
          is_the_final_export: whether training has ended. If it ends at a checkpoint that was
            already evaluated, there is a second call for that checkpoint.

        Returns:
          The path of the export; None if there was none.
        """


class _Evaluation(NamedTuple):
    """The arguments of `Exporter.export`."""

    estimator: Any
    export_path: str
    checkpoint_path: str
    eval_result: dict[str, Any]
    is_final: bool


class _SavedModelExporter(Exporter):
    """Writes SavedModels for serving."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable | None,
        assets_extra: Mapping[str, str] | None,
        as_text: bool,
        exports_to_keep: int | None,
    ) -> None:
        check_instance("name", name, str, "a string")
        check_exporter_name(name)
        check_receiver_fn(serving_input_receiver_fn)
        if _RECORD_NAME in make_extra_assets(assets_extra, must_exist=False):
            raise ValueError(
                f"`assets_extra` has the destination {_RECORD_NAME!r}, where the exporter keeps "
                "its record. Rename it."
            )
        check_limit("exports_to_keep", exports_to_keep, "None keeps all")
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        self._assets_extra = dict(assets_extra or {})
        self._as_text = as_text
        self._exports_to_keep = exports_to_keep
        self._last: tuple[Any, bytes] | None = None  # What was exported last, and the path.

    @property
    def name(self) -> str:
        """The directory in `<model_dir>/export`."""
        return self._name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        """Exports if the class's condition holds; see `Exporter`."""
        check_evaluated(checkpoint_path, eval_result)
        return self._export_if_due(
            _Evaluation(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)
        )

    @abc.abstractmethod
    def _export_if_due(self, evaluation: _Evaluation) -> bytes | None:
        """Exports if the class's condition holds."""

    def _write_once(self, evaluation: _Evaluation) -> bytes:
        """Writes an export unless the last one is of this evaluation; returns its path."""
        if self._last is not None and self._last[0] == _identity(evaluation):
            return self._last[1]
        return self._write(evaluation)

    def _write(self, evaluation: _Evaluation) -> bytes:
        """Writes an export with its record, then removes the oldest excess exports."""
        record = {
            "exporter": type(self).__name__,
            "checkpoint": os.path.basename(evaluation.checkpoint_path),
            "metrics": scalars_of(evaluation.eval_result),
        }
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, _RECORD_NAME)
            with open(path, "w") as file:
                json.dump(record, file, indent=2)
            written = evaluation.estimator.export_saved_model(
                evaluation.export_path,
                self._receiver_fn,
                assets_extra={**self._assets_extra, _RECORD_NAME: path},
                as_text=self._as_text,
                checkpoint_path=evaluation.checkpoint_path,
            )
        if self._exports_to_keep is not None:
            own = self._exports(evaluation.export_path)
            # Exports of other programs count too, because this exporter may continue their series.
            counted = [p for p in numbered_dirs(evaluation.export_path) if p in own or _is_time(p)]
            for old in counted[: -self._exports_to_keep]:
                remove_numbered_dir(old)
        self._last = _identity(evaluation), written
        return written

    def _exports(self, export_path: str) -> dict[str, dict[str, float]]:
        """Returns this exporter's exports of all runs, oldest first: path to metrics."""
        found = {}
        for path in numbered_dirs(export_path):
            record = _read_record(path)
            if record.get("exporter") == type(self).__name__:
                found[path] = record["metrics"]
        return found


class LatestExporter(_SavedModelExporter):
    """Exports after every evaluation, and keeps only the latest exports."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        """Checks the arguments; writes nothing.

        Args:
          name: the directory in `<model_dir>/export`.
          serving_input_receiver_fn: returns the input receiver; see `Estimator.export_saved_model`.
          assets_extra: files to copy into `assets.extra`: maps destinations there to source paths.
          as_text: whether to write the graph as text.
          exports_to_keep: the number of latest exports to keep; None keeps all.

        Raises:
          TypeError, ValueError: an argument is wrong.
        """
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)

    def _export_if_due(self, evaluation: _Evaluation) -> bytes:
        """Exports, unless this is a second, final call for the same evaluation."""
        return self._write_once(evaluation) if evaluation.is_final else self._write(evaluation)


class FinalExporter(_SavedModelExporter):
    """Exports once, when training has ended for any reason."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        """Checks the arguments, which are those of LatestExporter; writes nothing."""
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, None)

    def _export_if_due(self, evaluation: _Evaluation) -> bytes | None:
        """Exports if training has ended."""
        return self._write(evaluation) if evaluation.is_final else None


def loss_smaller(
    best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]
) -> bool:
    """Returns whether the current "loss" is lower than the best one.

    Raises:
      ValueError: a result has no "loss".
    """
    for argument, result in (
        ("best_eval_result", best_eval_result),
        ("current_eval_result", current_eval_result),
    ):
        if not result or "loss" not in result:
            raise ValueError(f"`{argument}` ({result!r}) has no 'loss'. Pass another `compare_fn`.")
    return bool(current_eval_result["loss"] < best_eval_result["loss"])


class BestExporter(_SavedModelExporter):
    """Exports when an evaluation is better than all previous ones, including those of earlier runs.

    The best result of earlier runs is in the record of their newest export. Without one, the first
    evaluation is exported. An evaluation is never exported if a metric that `compare_fn` reads is
    NaN.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable | None = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., bool] = loss_smaller,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        """Checks the arguments; reads and writes nothing.

        Args:
          name: the directory in `<model_dir>/export`.
          serving_input_receiver_fn: returns the input receiver; see `Estimator.export_saved_model`.
          event_file_pattern: ignored, as the records of exports hold the best result of earlier
            runs.
          compare_fn: takes `best_eval_result` and `current_eval_result`, two dicts from metric
            names to values, and returns whether the current one is better.
          assets_extra: files to copy into `assets.extra`: maps destinations there to source paths.
          as_text: whether to write the graph as text.
          exports_to_keep: the number of latest exports to keep; None keeps all. The best is always
            kept.

        Raises:
          TypeError, ValueError: an argument is wrong.
        """
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        rule = "a pattern of paths in `model_dir`, or None"
        check_type("event_file_pattern", event_file_pattern, str, rule)
        check_compare_fn(compare_fn)
        self._compare_fn = compare_fn
        self._best: Mapping[str, Any] | None = None
        self._best_is_of: str | None = None

    def _export_if_due(self, evaluation: _Evaluation) -> bytes | None:
        """Exports if this evaluation is the best so far."""
        if self._best_is_of != evaluation.export_path:
            self._best = self._recorded_best(evaluation.export_path, evaluation.eval_result)
            self._best_is_of = evaluation.export_path
        if not self._is_better(evaluation.eval_result):
            return None
        # A `compare_fn` that accepts equal metrics also accepts a second call for an evaluation.
        written = self._write_once(evaluation)
        self._best = dict(evaluation.eval_result)
        return written

    def _recorded_best(
        self, export_path: str, current: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Returns the best metrics of earlier runs; None if there are no comparable ones."""
        exports = self._exports(export_path)
        if not exports:
            return None
        best = list(exports.values())[-1]
        # A record holds only numbers, and the metrics may have changed since.
        is_enough = set(current) <= set(best) or self._metrics_looked_at(current) <= set(best)
        return best if is_enough else None

    def _is_better(self, current: Mapping[str, Any]) -> bool:
        if self._best is None:
            is_better, has_nan = True, any(map(_is_nan, current.values()))
            names = self._metrics_looked_at(current) if has_nan else set()
        else:
            watched = _Watched(current)
            is_better = bool(
                self._compare_fn(best_eval_result=dict(self._best), current_eval_result=watched)
            )
            names = watched.names_read or set(current)
        if any(_is_nan(current.get(name)) for name in names):
            log.warning("An evaluation with NaN is not the best model: %s", dict(current))
            return False
        return is_better

    def _metrics_looked_at(self, result: Mapping[str, Any]) -> set[str]:
        """Returns the metrics that `compare_fn` reads by name; all if it reads none by name."""
        watched = _Watched(result)
        self._compare_fn(best_eval_result=watched, current_eval_result=watched)
        return watched.names_read or set(result)


class _Watched(dict):
    """A dict of metrics that records which of them are read."""

    def __init__(self, metrics: Mapping[str, Any]) -> None:
        super().__init__(metrics)
        self.names_read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.names_read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.names_read.add(key)
        return super().get(key, default)


def _identity(evaluation: _Evaluation) -> Any:
    """Identifies an evaluation by where it is exported to, its weights and its metrics."""
    weights = files.checkpoint_identity(evaluation.checkpoint_path)
    metrics = json.dumps(scalars_of(evaluation.eval_result))  # Where NaN is equal to NaN.
    return evaluation.export_path, weights, metrics


def _read_record(directory: str) -> dict[str, Any]:
    """Returns the record of an export; empty if no exporter has made it."""
    path = os.path.join(directory, "assets.extra", _RECORD_NAME)
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        return json.loads(file.read())


def _is_time(path: str) -> bool:
    """Returns whether a directory's number is a time in seconds, as for exports."""
    return len(os.path.basename(path)) == 10


def _is_nan(value: Any) -> bool:
    arrays = map(np.asarray, tf.nest.flatten(value))
    return any(array.dtype.kind == "f" and np.isnan(array).any() for array in arrays)
