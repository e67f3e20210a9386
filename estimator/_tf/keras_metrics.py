"""The names of the metrics that a model of tf-keras was compiled with."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

# Without v2 behavior; other strings are called by the function that they stand for.
_SHORT = {"accuracy": "acc", "acc": "acc", "crossentropy": "ce", "ce": "ce"}


def tf_keras_metrics(arguments: Mapping[str, Any], output_names: Sequence[str] | None) -> Any:
    """Returns what computes the metrics of a compiled model of tf-keras.

    Its metrics are called as by tf.estimator 2.15. `older_names` maps to these names those that
    tf-keras's `evaluate` returns. 2.16 to 2.21.

    Args:
      arguments: of `compile`.
      output_names: of the model; None if it is neither functional nor sequential.
    """
    return _container_class()(
        arguments["metrics"],
        weighted_metrics=arguments["weighted_metrics"],
        output_names=output_names,
    )


@functools.cache
def _container_class() -> type:
    base: Any = importlib.import_module("tf_keras.src.engine.compile_utils").MetricsContainer

    class Metrics(base):
        """Names metrics as the v1 training of tf-keras does, which tf.estimator 2.15 ran."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.older_names: dict[str, str] = {}
            self._given: dict[int, Any] = {}  # What `compile` was given, by the metric's id.

        def _get_metric_object(self, metric: Any, y_t: Any, y_p: Any) -> Any:
            made = super()._get_metric_object(metric, y_t, y_p)
            self._given[id(made)] = metric
            return made

        def _set_metric_names(self) -> None:
            has_several = len(self._output_names) > 1
            taken = {"loss"}
            for i, output in enumerate(self._output_names):
                prefix = f"{output}_" if has_several else ""
                for metrics, word in ((self._metrics, ""), (self._weighted_metrics, "weighted_")):
                    # Of several metrics with one name, 2.15 evaluates the last.
                    given = (m for m in metrics[i] if m is not None)
                    named = {_name_of(m, self._given[id(m)], prefix, word): m for m in given}
                    metrics[i][:] = named.values()
                    for name, metric in named.items():
                        older = f"{prefix}{metric.name}"
                        if older in self.older_names:
                            older = f"{prefix}{word}{metric.name}"
                        metric._name = _unused(name, taken)
                        self.older_names.setdefault(older, metric.name)

    return Metrics


def _name_of(metric: Any, given: Any, prefix: str, word: str) -> str:
    """Returns the name of a metric that was made of what `compile` was given."""
    if tf.__internal__.tf2.enabled():
        word = ""
    start = f"{prefix}{word}"
    if given is metric:  # tf-keras may have renamed it: in `evaluate`, or in a v1 graph.
        return metric.name if metric.name.startswith(start) else f"{start}{metric.name}"
    if not isinstance(given, str):
        return f"{start}{metric.name}"
    if tf.__internal__.tf2.enabled():
        return f"{start}{given}"
    function_name = getattr(getattr(metric, "_fn", None), "__name__", metric.name)
    return f"{start}{_SHORT.get(given, function_name)}"


def _unused(name: str, taken: set[str]) -> str:
    """Returns a name that is not taken yet, with a number if need be, and takes it."""
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
