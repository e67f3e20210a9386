"""Input receivers: what an exported model is fed, and the features computed from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from estimator.config.checks import (
    WrongTypeError,
    check_instance,
    check_limit,
    check_takes_nothing,
)
from estimator.spec import ModeKeys
from estimator.spec.named import check_tensor, is_tensor, make_named_tensors

_FEATURE, _LABEL, _INPUT = "feature", "label", "input"  # names of single tensors

_FEATURE_TYPES = (
    tf.io.FixedLenFeature,
    tf.io.FixedLenSequenceFeature,
    tf.io.RaggedFeature,
    tf.io.SparseFeature,
    tf.io.VarLenFeature,
)
_ANY_SIZE = "None stands for any batch size"


class _ServingFields(NamedTuple):
    features: Any
    receiver_tensors: dict[str, Any]
    receiver_tensors_alternatives: dict[str, dict[str, Any]] | None


class ServingInputReceiver(_ServingFields):
    """The tensors that requests feed, and the features that the model gets.

    Attributes:
        features: the features passed to `model_fn`.
        receiver_tensors: maps names to tensors: the inputs of every signature.
        receiver_tensors_alternatives: maps names to alternative inputs, each a dict of tensors,
          from which the features are computed as well; or None. Each adds signatures
          "<name>:<signature>".
    """

    __slots__ = ()

    def __new__(
        cls,
        features: Any,
        receiver_tensors: Any,
        receiver_tensors_alternatives: Mapping[str, Any] | None = None,
    ) -> ServingInputReceiver:
        """Checks and names the tensors.

        Args:
            features: a dict with string or int keys, or another structure, of tensors. A single
                tensor becomes `{"feature": tensor}`; see TensorServingInputReceiver.
            receiver_tensors: a dict of name to tensor, or one tensor, which is named "input".
                Usually placeholders.
            receiver_tensors_alternatives: a dict of such `receiver_tensors`.

        Raises:
            ValueError: an argument is None or empty, or holds anything but tensors.
        """
        if is_tensor(features):
            features = {_FEATURE: features}
        _check_features(features, "features")
        named = make_named_tensors(receiver_tensors, "receiver_tensors", _INPUT)
        alternatives = _make_alternatives(receiver_tensors_alternatives)
        return super().__new__(cls, features, named, alternatives)


class TensorServingInputReceiver(_ServingFields):
    """A ServingInputReceiver for a model whose features are a single tensor, not a dict."""

    __slots__ = ()

    def __new__(
        cls,
        features: Any,
        receiver_tensors: Any,
        receiver_tensors_alternatives: Mapping[str, Any] | None = None,
    ) -> TensorServingInputReceiver:
        """Checks and names the tensors like ServingInputReceiver does, but leaves `features` alone.

        Raises:
            ValueError: `features` is not a tensor, or as for ServingInputReceiver.
        """
        if not is_tensor(features):
            raise ValueError(
                f"`features` ({features!r}) must be a single tensor. "
                "For a dict of features use ServingInputReceiver."
            )
        named = make_named_tensors(receiver_tensors, "receiver_tensors", _INPUT)
        alternatives = _make_alternatives(receiver_tensors_alternatives)
        return super().__new__(cls, features, named, alternatives)


class _SupervisedFields(NamedTuple):
    features: Any
    labels: Any
    receiver_tensors: dict[str, Any]


class SupervisedInputReceiver(_SupervisedFields):
    """The tensors fed to an exported training or evaluation graph.

    Attributes:
        features: the features passed to `model_fn`.
        labels: the labels passed to `model_fn`; a single tensor stays one.
        receiver_tensors: maps names to tensors: the inputs of the signature.
    """

    __slots__ = ()

    def __new__(cls, features: Any, labels: Any, receiver_tensors: Any) -> SupervisedInputReceiver:
        """Checks the arguments, and names the `receiver_tensors` ("input" if it is one tensor).

        Raises:
            ValueError: an argument is None or empty, or holds anything but tensors.
        """
        _check_features(features, "features")
        _check_features(labels, "labels")
        named = make_named_tensors(receiver_tensors, "receiver_tensors", _INPUT)
        return super().__new__(cls, features, labels, named)


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Returns a serving input receiver function that takes the features themselves.

    Args:
        features: a dict from names to tensors, TensorSpecs or arrays. Only dtype and shape matter;
          the first dimension is the batch.
        default_batch_size: the batch size of the placeholders; None for any.

    Returns:
        A function without arguments that builds a placeholder for each feature, named after it, in
        the default graph.

    Raises:
        ValueError: `features` is not such a dict, or the batch size is not a positive int.
    """
    check_limit("default_batch_size", default_batch_size, _ANY_SIZE)
    rule = 'a dict of name to tensor. For a single tensor pass {"feature": tensor}'
    check_instance("features", features, Mapping, rule)
    specs = _make_specs(features, "features", _FEATURE, default_batch_size)

    def serving_input_receiver_fn() -> ServingInputReceiver:
        placeholders = _build_placeholders(specs)
        # Two dicts, so that a model_fn that modifies its features does not change the signature.
        return ServingInputReceiver(dict(placeholders), placeholders)

    return serving_input_receiver_fn


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Returns a serving input receiver function that takes serialized `tf.Example`s.

    Args:
        feature_spec: a dict from names to FixedLenFeature, VarLenFeature and so on, as for
          `tf.io.parse_example`.
        default_batch_size: the batch size of the placeholder; None for any.

    Returns:
        A function without arguments that builds a string placeholder [batch size], called
        "examples" in the signatures ("inputs" in those that classify or regress), and the ops that
        parse it, in the default graph.

    Raises:
        ValueError: `feature_spec` is not such a dict, or the batch size is not a positive int.
    """
    check_limit("default_batch_size", default_batch_size, _ANY_SIZE)
    _check_feature_spec(feature_spec)

    def serving_input_receiver_fn() -> ServingInputReceiver:
        # Programs fetch this name from exported graphs.
        serialized = tf.compat.v1.placeholder(
            tf.string, shape=[default_batch_size], name="input_example_tensor"
        )
        features = tf.io.parse_example(serialized, dict(feature_spec))
        return ServingInputReceiver(features, {"examples": serialized})

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """Returns an input receiver function that takes the features and labels themselves.

    Args:
        features: a tensor, TensorSpec or array, or a dict of them. Only dtype and shape matter; the
          first dimension is the batch.
        labels: the labels, in the same form.
        default_batch_size: the batch size of the placeholders; None for any.

    Returns:
        A function without arguments that builds the placeholders in the default graph. A single
        feature tensor is called "input" in the signature, a single label tensor "label".

    Raises:
        ValueError: a feature and a label have the same name, a value is not a tensor, or the batch
          size is not a positive int.
    """
    check_limit("default_batch_size", default_batch_size, _ANY_SIZE)
    feature_specs = _make_specs(features, "features", _INPUT, default_batch_size)
    label_specs = _make_specs(labels, "labels", _LABEL, default_batch_size)
    if shared := sorted(feature_specs.keys() & label_specs.keys()):
        raise ValueError(
            f"`features` and `labels` share the names {shared}: each is one input of the same "
            "signature. Rename one of the two."
        )

    def supervised_input_receiver_fn() -> SupervisedInputReceiver:
        feature_tensors = _build_placeholders(feature_specs)
        label_tensors = _build_placeholders(label_specs)
        return SupervisedInputReceiver(
            dict(feature_tensors) if isinstance(features, Mapping) else feature_tensors[_INPUT],
            dict(label_tensors) if isinstance(labels, Mapping) else label_tensors[_LABEL],
            {**feature_tensors, **label_tensors},
        )

    return supervised_input_receiver_fn


_SERVING_WAY_OUT = (
    "a ServingInputReceiver or TensorServingInputReceiver; build_parsing_serving_input_receiver_fn "
    "and build_raw_serving_input_receiver_fn make functions"
)
_SUPERVISED_WAY_OUT = (
    "a SupervisedInputReceiver; build_raw_supervised_input_receiver_fn makes functions"
)


def check_receiver_fn(
    receiver_fn: Any,
    argument: str = "serving_input_receiver_fn",
    kind: str = "ServingInputReceiver",
) -> None:
    """Raises TypeError unless it is a function that can be called without arguments."""
    check_instance(argument, receiver_fn, Callable, f"a function that returns a {kind}")
    check_takes_nothing(argument, receiver_fn)


def call_receiver_fn(receiver_fn: Callable, argument: str, mode: str = ModeKeys.PREDICT) -> Any:
    """Calls the user's function; raises an error unless it returns an input receiver.

    Any object with `features` and `receiver_tensors` is accepted, because other libraries have
    their own receivers. Labels are not required even in a mode with a loss, because a model may
    work without them.

    Raises:
        TypeError: the result is not a receiver.
        ValueError: its receiver tensors are not in the default graph.
    """
    receiver = receiver_fn()
    if not (hasattr(receiver, "features") and hasattr(receiver, "receiver_tensors")):
        is_serving = mode == ModeKeys.PREDICT
        raise WrongTypeError(
            f"`{argument}` returned {receiver!r}, a {type(receiver).__name__}. It must return "
            f"{_SERVING_WAY_OUT if is_serving else _SUPERVISED_WAY_OUT} that do."
        )
    alternatives = getattr(receiver, "receiver_tensors_alternatives", None) or {}
    tensors = (receiver.receiver_tensors, alternatives)
    for tensor in tf.nest.flatten(tensors, expand_composites=True):
        if getattr(tensor, "graph", None) is not tf.compat.v1.get_default_graph():
            raise ValueError(
                f"`{argument}` returned the receiver tensor {tensor!r}, which is not of the "
                "graph that is being exported. Make the placeholders inside the function."
            )
    return receiver


def _check_features(features: Any, argument: str) -> None:
    """Raises ValueError unless `features` is a tensor or a structure of some, or an empty dict.

    A generator that draws its own input has no features.
    """
    values = list(features.values()) if isinstance(features, Mapping) else features
    leaves = tf.nest.flatten(values)
    if features is None or (not leaves and not isinstance(features, Mapping)):
        raise ValueError(
            f"`{argument}` ({features!r}) must be a tensor or a dict of name to tensor."
        )
    for key in features if isinstance(features, Mapping) else ():
        if not isinstance(key, str | int):
            raise ValueError(
                f"`{argument}` has the key {key!r}: keys must be strings or ints. Rename it."
            )
    for leaf in leaves:
        check_tensor(leaf, f"a value of `{argument}`")


def _make_alternatives(alternatives: Any) -> dict[str, dict[str, Any]] | None:
    if alternatives is None:
        return None
    check_instance(
        "receiver_tensors_alternatives", alternatives, Mapping, "a dict of name to receiver tensors"
    )
    return {
        name: make_named_tensors(tensors, f"receiver_tensors_alternatives[{name!r}]", _INPUT)
        for name, tensors in alternatives.items()
    }


def _check_feature_spec(feature_spec: Any) -> None:
    if not isinstance(feature_spec, Mapping) or not feature_spec:
        raise WrongTypeError(
            f"`feature_spec` ({feature_spec!r}) must be a dict of name to tf.io.FixedLenFeature, "
            "tf.io.VarLenFeature and so on, with at least one entry."
        )
    rule = (
        "a tf.io.FixedLenFeature, tf.io.VarLenFeature or another of tf.io's features. For tensors "
        "use build_raw_serving_input_receiver_fn"
    )
    for name, feature in feature_spec.items():
        check_instance(f"feature_spec[{name!r}]", feature, _FEATURE_TYPES, rule)


def _make_specs(
    templates: Any, argument: str, default_name: str, batch_size: int | None
) -> dict[str, tf.TensorSpec]:
    """Returns the specs of the placeholders by the names of the features or labels."""
    if not isinstance(templates, Mapping):
        return {default_name: _make_spec(templates, default_name, f"`{argument}`", batch_size)}
    if not templates:
        raise ValueError(f"`{argument}` ({{}}) must name at least one tensor.")
    for name in templates:
        if not isinstance(name, str):
            raise ValueError(f"`{argument}` has the key {name!r}: keys must be strings. Rename it.")
    return {
        name: _make_spec(template, name, f"`{argument}[{name!r}]`", batch_size)
        for name, template in templates.items()
    }


def _make_spec(template: Any, name: str, label: str, batch_size: int | None) -> tf.TensorSpec:
    """Returns the dtype, shape and name of the placeholder for `template`."""
    composite = (tf.SparseTensor, tf.SparseTensorSpec, tf.RaggedTensor, tf.RaggedTensorSpec)
    is_dense = hasattr(template, "dtype") and hasattr(template, "shape")
    if isinstance(template, composite) or not is_dense:
        raise ValueError(
            f"{label} ({template!r}) must be a dense tensor, a tf.TensorSpec or an array. For "
            "sparse and ragged features write a function that returns a ServingInputReceiver, with "
            "tf.compat.v1.sparse_placeholder or tf.compat.v1.ragged.placeholder."
        )
    shape = tf.TensorShape(template.shape)
    if shape.rank == 0:
        raise ValueError(
            f"{label} ({template!r}) is a scalar, but its first dimension must be the batch. "
            "Pass one of shape [batch size, ...]."
        )
    if shape.rank is not None:
        shape = tf.TensorShape([batch_size]).concatenate(shape[1:])
    op = getattr(template, "op", None)  # An eager tensor has none.
    name = op.name if op is not None else getattr(template, "name", None) or name
    return tf.TensorSpec(shape, template.dtype, _make_op_name(name))


def _build_placeholders(specs: Mapping[str, tf.TensorSpec]) -> dict[str, tf.Tensor]:
    build = tf.compat.v1.placeholder
    return {name: build(spec.dtype, spec.shape, spec.name) for name, spec in specs.items()}


def _make_op_name(name: str) -> str:
    """Replaces characters that an op's name may not contain."""
    return re.sub(r"^[^A-Za-z0-9.]|[^A-Za-z0-9_.\\/>-]", "_", name).lstrip("_") or "input"
