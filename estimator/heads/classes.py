"""What heads of classes share: predicted classes, their labels, and the Classify signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import check_number, checked_list
from estimator.spec.outputs import ClassificationOutput


def class_outputs(logits: tf.Tensor, vocabulary: Sequence[str] | None) -> dict[str, tf.Tensor]:
    """Returns the predictions of one of several classes; logits are [D0, ..., DN, num_classes]."""
    ids = tf.expand_dims(tf.argmax(logits, -1), -1)
    return {
        "probabilities": tf.nn.softmax(logits, name="probabilities"),
        "class_ids": ids,
        "classes": _names(ids, vocabulary),
        "all_class_ids": _for_each(tf.range(logits.shape[-1]), logits),
        "all_classes": all_classes(logits, vocabulary),
    }


def classification_output(
    predictions: dict[Any, tf.Tensor], vocabulary: Sequence[str] | None
) -> ClassificationOutput:
    """Returns the probabilities with the labels of their classes."""
    scores = predictions["probabilities"]
    return ClassificationOutput(scores, all_classes(scores, vocabulary))


def all_classes(scores: tf.Tensor, vocabulary: Sequence[str] | None) -> tf.Tensor:
    """Returns the labels of all classes, the vocabulary or ids as strings, for each example."""
    names = map(str, range(scores.shape[-1])) if vocabulary is None else vocabulary
    return _for_each(tf.constant(list(names), tf.string), scores)


def checked_thresholds(thresholds: Any) -> tuple[float, ...]:
    """Returns the thresholds; raises an error unless all are numbers in (0, 1)."""
    thresholds = checked_list("thresholds", thresholds)
    for threshold in thresholds:
        check_number("thresholds", threshold)
        if not 0 < threshold < 1:
            raise ValueError(f"`thresholds` holds {threshold}; all must be between 0 and 1.")
    return tuple(map(float, thresholds))


def _names(ids: tf.Tensor, vocabulary: Sequence[str] | None) -> tf.Tensor:
    if vocabulary is None:
        return tf.strings.as_string(ids, name="str_classes")
    return tf.gather(tf.constant(list(vocabulary), tf.string), ids, name="class_string_lookup")


def _for_each(values: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Repeats the values of all classes for each example: [batch size, classes]."""
    return tf.tile(values[tf.newaxis], [tf.shape(logits)[0], 1])
