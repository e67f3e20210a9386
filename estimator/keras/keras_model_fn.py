"""The `model_fn` of a Keras model: its compiled loss, optimizer and metrics in an EstimatorSpec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.keras.keras_source import KerasSource
from estimator.keras.keras_weights import InitialWeights, write_weight_names
from estimator.model.reduction import keep_local, keep_metrics_local
from estimator.model.uncached_reads import without_cached_reads
from estimator.optimizer.cross_shard import CrossShardOptimizer
from estimator.spec import EstimatorSpec, ModeKeys
from estimator.spec.outputs import PredictOutput

_V1 = tf.compat.v1
_WITH_WEIGHTS = {"features", "sample_weights"}


def make_model_fn(
    source: KerasSource,
    metric_names_map: Mapping[str, str],
    export_outputs: Mapping[str, Callable[[Any], Any]],
) -> Callable[..., EstimatorSpec]:
    """Returns the `model_fn`.

    Args:
      source: builds the model.
      metric_names_map: see `model_to_estimator`.
      export_outputs: for outputs by name, the class of the ExportOutput to export them as, too.
    """
    initial = InitialWeights(source.weights)

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        features, sample_weight = _without_weights(features)
        inputs = _inputs_of(source, features)
        with without_cached_reads():  # tf-keras has recurrent cells cache their weights.
            model = source.build()
            outputs = model(inputs, training=mode == ModeKeys.TRAIN)
        initial.load_into(model.weights, config)
        predictions = _by_name(model, outputs)
        if mode == ModeKeys.PREDICT:
            _keep_local(model.metrics)  # Those of layers.
            exported = _build_exports(predictions, export_outputs)
            return EstimatorSpec(mode, predictions=predictions, export_outputs=exported)
        labels = _labels_of(predictions, labels)
        batch = {"x": inputs, "y": labels, "y_pred": outputs, "sample_weight": sample_weight}
        compiled = source.compile(model, mode)
        loss = compiled.build_loss(batch, is_training=mode == ModeKeys.TRAIN)
        # Keras makes variables for the mean of the losses in training, too: not for checkpoints.
        _keep_local(compiled.metrics_so_far())
        if mode == ModeKeys.EVAL:
            _keep_variables_local(compiled.optimizer)
            metrics = compiled.build_metrics(batch)
            metrics = _renamed(metrics, metric_names_map, compiled.older_names())
            return EstimatorSpec(mode, predictions, loss, eval_metric_ops=metrics)
        write_weight_names(model.weights, config)
        trained = zip(model.weights, source.is_trained, strict=True)
        train_op = CrossShardOptimizer(compiled.optimizer).minimize(
            compiled.build_scaled(loss),
            _V1.train.get_global_step(),
            var_list=[_tf.variable_of(weight) for weight, is_trained in trained if is_trained],
        )
        return EstimatorSpec(mode, predictions, loss, train_op)

    return model_fn


def _keep_local(metrics: Sequence[Any]) -> None:
    keep_metrics_local({str(i): metric for i, metric in enumerate(metrics)})


def _keep_variables_local(optimizer: Any) -> None:
    """Lets an evaluation take no variable of the optimizer from a checkpoint, such as its steps."""
    if _tf.legacy_name(optimizer) is not None:
        return  # It has none so far, and would make some if it were asked.
    variables = optimizer.variables
    variables = variables() if callable(variables) else variables
    for one in map(_tf.variable_of, [*variables, getattr(optimizer, "learning_rate", None)]):
        if isinstance(one, tf.Variable):  # And not a schedule's value.
            keep_local(_tf.copies(one))


def _without_weights(features: Any) -> tuple[Any, Any]:
    """Splits {"features": ..., "sample_weights": ...}, as `model_to_estimator` documents it."""
    if isinstance(features, dict) and set(features) == _WITH_WEIGHTS:
        return features["features"], features["sample_weights"]
    return features, None


def _inputs_of(source: KerasSource, features: Any) -> Any:
    """Returns the features in the structure of the model's inputs."""
    if not isinstance(features, dict) or not source.input_names:
        return features
    if missing := [name for name in source.input_names if name not in features]:
        raise ValueError(
            f"The features lack {missing}; the inputs of `keras_model` are {source.input_names}, "
            f"and `input_fn` gives {sorted(map(str, features))}. Give features by these names, a "
            "tensor if there is one input, or a list; weights of examples go with them as "
            '{"features": ..., "sample_weights": ...}.'
        )
    inputs = {name: features[name] for name in source.input_names}
    if source.takes_dict:
        return inputs
    values = list(inputs.values())
    return values[0] if len(values) == 1 else values


def _by_name(model: Any, outputs: Any) -> dict[str, tf.Tensor]:
    if isinstance(outputs, dict):
        return dict(outputs)
    flat = tf.nest.flatten(outputs)
    names = list(getattr(model, "output_names", None) or ())
    if not names and getattr(model, "inputs", None):
        names = [model.layers[-1].name]  # Of a sequential model.
    if len(names) != len(flat):
        names = [f"output_{i + 1}" for i in range(len(flat))]
    return dict(zip(names, flat, strict=True))


def _labels_of(predictions: dict[str, tf.Tensor], labels: Any) -> Any:
    """Returns the labels as the compiled loss takes them: of one output, without its name.

    Outputs without a loss need no labels.
    """
    if not isinstance(labels, dict):
        return labels
    used = {name: labels[name] for name in predictions if name in labels}
    if not used:
        raise ValueError(
            f"The labels are {sorted(map(str, labels))}, and the outputs of `keras_model` are "
            f"{list(predictions)}. Give labels by these names, or a tensor if there is one output."
        )
    return used[next(iter(predictions))] if len(predictions) == 1 else used


def _renamed(
    metrics: dict[str, Any], names: Mapping[str, str], older: Mapping[str, str]
) -> dict[str, Any]:
    if unknown := [name for name in names if name not in metrics and name not in older]:
        raise ValueError(
            f"`metric_names_map` renames {unknown}, which `keras_model` does not have: its metrics "
            f"are {list(metrics)}. Use these names."
        )
    by_key = {name if name in metrics else older[name]: new for name, new in names.items()}
    if len(by_key) < len(names):
        raise ValueError(
            f"`metric_names_map` ({dict(names)}) renames one metric twice; the metrics of "
            f"`keras_model` are {list(metrics)}. Use these names."
        )
    renamed = {by_key.get(name, name): metric for name, metric in metrics.items()}
    if len(renamed) < len(metrics):
        raise ValueError(
            f"`metric_names_map` ({dict(names)}) gives two metrics one name; the metrics of "
            f"`keras_model` are {list(metrics)}. Give each a name of its own."
        )
    return renamed


def _build_exports(
    predictions: dict[str, tf.Tensor], classes: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    if unknown := [name for name in classes if name not in predictions]:
        raise ValueError(
            f"`export_outputs` has {unknown}, which `keras_model` does not have: its outputs are "
            f"{list(predictions)}. Use these names."
        )
    exported = {name: make(predictions[name]) for name, make in classes.items()}
    return {"serving_default": PredictOutput(predictions), **exported}
