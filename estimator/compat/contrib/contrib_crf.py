"""`tf.contrib.crf`: linear-chain conditional random fields.

The formulas are those of Lafferty, McCallum and Pereira, "Conditional random fields", 2001; the
decoder is Viterbi's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_V1 = tf.compat.v1


def crf_sequence_score(
    inputs: tf.Tensor, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> tf.Tensor:
    """Returns the unnormalized log score of each tag sequence, [batch].

    Args:
      inputs: the scores of tags, [batch, length, tags].
      tag_indices: [batch, length], int.
      sequence_lengths: [batch], int.
      transition_params: the score of going from tag i to tag j, [tags, tags].
    """
    return crf_unary_score(tag_indices, sequence_lengths, inputs) + crf_binary_score(
        tag_indices, sequence_lengths, transition_params
    )


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the scores of the tags themselves, [batch]."""
    tags = tf.one_hot(tag_indices, tf.shape(inputs)[2], dtype=inputs.dtype)
    mask = tf.sequence_mask(sequence_lengths, tf.shape(inputs)[1], inputs.dtype)
    return tf.reduce_sum(tf.reduce_sum(inputs * tags, 2) * mask, 1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """Returns the sum of the scores of the transitions, [batch]."""
    transitions = tf.convert_to_tensor(transition_params)
    tags = tf.cast(tag_indices, tf.int32)
    pairs = tf.stack([tags[:, :-1], tags[:, 1:]], 2)
    lengths = tf.maximum(tf.cast(sequence_lengths, tf.int32) - 1, 0)
    mask = tf.sequence_mask(lengths, tf.shape(tags)[1] - 1, transitions.dtype)
    return tf.reduce_sum(tf.gather_nd(transitions, pairs) * mask, 1)


def crf_log_norm(inputs: tf.Tensor, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """Returns the logarithm of the sum of all tag sequences' exponential scores, [batch].

    Of length 0 there is one sequence, whose score is 0.
    """
    alphas = _scanned(inputs, transition_params, tf.reduce_logsumexp)
    norm = tf.reduce_logsumexp(_last(alphas, sequence_lengths), 1)
    return tf.where(tf.less_equal(sequence_lengths, 0), tf.zeros_like(norm), norm)


def crf_log_likelihood(
    inputs: tf.Tensor, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[tf.Tensor, Any]:
    """Returns the log likelihood of each tag sequence, [batch], and the transition scores.

    Without `transition_params`, they are the variable "transitions".
    """
    num_tags = tf.compat.dimension_value(inputs.shape[2])
    if transition_params is None:
        transition_params = _V1.get_variable("transitions", [num_tags, num_tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    norm = crf_log_norm(inputs, sequence_lengths, transition_params)
    return score - norm, transition_params


def crf_decode(
    potentials: tf.Tensor, transition_params: Any, sequence_length: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the best tags, [batch, length], int32, with 0 after the end; and their scores.

    The score of a sequence of length 0 is that of its first position, as in TensorFlow 1.15.
    """
    lengths = tf.cast(sequence_length, tf.int32)
    transitions = tf.convert_to_tensor(transition_params)
    forward = _scanned(potentials, transitions, tf.reduce_max)
    last = _last(forward, lengths)
    final = tf.argmax(last, 1, tf.int32)
    max_length = tf.shape(potentials)[1]

    def step_back(tag: tf.Tensor, item: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        best, position = item
        # The tag at `position`, given the tag after it; the last one is known.
        into = tf.gather(tf.transpose(transitions), tag)
        before = tf.argmax(best + into, 1, tf.int32)
        return tf.where(position >= lengths - 1, final, before)

    tags = tf.scan(step_back, (forward, tf.range(max_length)), final, reverse=True)
    mask = tf.sequence_mask(lengths, max_length, tf.int32)
    return tf.transpose(tags) * mask, tf.reduce_max(last, 1)


def viterbi_decode(score: np.ndarray, transition_params: np.ndarray) -> tuple[list[int], float]:
    """Returns the best tags of one sequence of scores, [length, tags], and its score, in NumPy."""
    best = np.array(score[0], float)
    pointers = []
    for row in score[1:]:
        options = best[:, np.newaxis] + transition_params
        pointers.append(options.argmax(0))
        best = row + options.max(0)
    tags = [int(best.argmax())]
    for pointer in reversed(pointers):
        tags.append(int(pointer[tags[-1]]))
    return tags[::-1], best.max()


def _scanned(
    inputs: tf.Tensor, transition_params: Any, reduce: Callable[..., tf.Tensor]
) -> tf.Tensor:
    """Returns the reduced scores of all sequences up to each tag, [length, batch, tags]."""
    transitions = tf.convert_to_tensor(transition_params)
    by_position = tf.transpose(inputs, [1, 0, 2])

    def step_or_start(state: tf.Tensor, item: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        scores, position = item
        before = reduce(state[:, :, tf.newaxis] + transitions, 1)
        return tf.where(tf.equal(position, 0), scores, scores + before)

    # A scan from position 1 on would fail for inputs that have only one.
    positions = tf.range(tf.shape(by_position)[0])
    return tf.scan(step_or_start, (by_position, positions), tf.zeros_like(by_position[0]))


def _last(states: tf.Tensor, lengths: Any) -> tf.Tensor:
    """Returns the state at each sequence's last position, [batch, tags]."""
    lengths = tf.cast(lengths, tf.int32)
    places = tf.stack([tf.maximum(lengths - 1, 0), tf.range(tf.shape(lengths)[0])], 1)
    return tf.gather_nd(states, places)
