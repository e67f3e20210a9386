"""The head of each step of a sequence: which steps count, and what it cannot use."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.heads.sequence import SequenceHead

V1 = tf.compat.v1
# Sequences of one step and of two.
MASK = np.array([[True, False, False], [True, True, False]])
LOGITS = np.float32([[[1], [9], [9]], [[2], [3], [9]]])
ERRORS = (ValueError, tf.errors.InvalidArgumentError)


def loss_of(labels, *, mask=MASK, logits=LOGITS, is_static=True, head=None, **features):
    """The loss in a graph; without static shapes, only those of sparse and ragged values."""

    def tensor_of(array):
        array = np.asarray(array)
        shape = array.shape if is_static else [None] * array.ndim
        return V1.placeholder_with_default(array, shape)

    with tf.Graph().as_default(), V1.Session() as session:
        labels = labels() if callable(labels) else tensor_of(labels)
        features = {key: tensor_of(value) for key, value in {"mask": mask, **features}.items()}
        head = SequenceHead(head or est.RegressionHead(), "mask")
        return session.run(head.loss(labels, tensor_of(logits), features))


def sparse(*rows):
    def make():
        return tf.ragged.constant(rows, tf.float32).to_sparse()

    return make


@pytest.mark.parametrize(
    "labels",
    [
        np.float32([[0, 7, 7], [0, 0, 7]]),
        np.float32([[0, 7, 7], [0, 0, 7]])[..., np.newaxis],
        sparse([0], [0, 0]),
        lambda: tf.ragged.constant([[0], [0, 0]], tf.float32),
        lambda: tf.ragged.constant([[[0]], [[0], [0]]], tf.float32, ragged_rank=1),
        lambda: tf.ragged.constant([[[0]], [[0], [0]]], tf.float32, ragged_rank=2),
    ],
    ids=["dense", "of rank 3", "sparse", "ragged", "ragged vectors", "ragged twice"],
)
def test_labels_of_any_form_count_without_padding(labels):
    assert loss_of(labels) == pytest.approx((1 + 4 + 9) / 3)


def test_labels_that_are_missing_are_named():
    with pytest.raises(ValueError, match="RegressionHead: there are no labels"):
        loss_of(lambda: None)


def test_ragged_labels_may_be_vectors():
    def labels():
        return tf.RaggedTensor.from_row_lengths(np.float32([[0, 1], [0, 2], [0, 3]]), [1, 2])

    logits = np.repeat(LOGITS, 2, axis=-1)
    loss = loss_of(labels, logits=logits, head=est.RegressionHead(2))
    assert loss == pytest.approx((1 + 4 + 9) / 6)


@pytest.mark.parametrize("num_times", [0, 1])
def test_without_any_step_the_loss_is_zero_whatever_the_size_of_the_labels(num_times):
    mask, logits = np.zeros([2, 1], bool), np.ones([2, 1, 1], np.float32)
    labels = np.zeros([2, num_times], np.float32)
    assert loss_of(labels, mask=mask, logits=logits, is_static=False) == 0


WEIGHTED = est.RegressionHead(weight_column="w")
ZEROS = np.zeros([2, 3], np.float32)
OTHER_SHAPES = {
    "labels": ({"labels": ZEROS[:, :1]}, "The labels must begin with the shape of the mask"),
    "more labels": ({"labels": np.zeros([2, 4])}, "The labels must begin with the shape of the ma"),
    "weights": (
        {"labels": ZEROS, "head": WEIGHTED, "w": ZEROS[:, :1]},
        "The weights, feature `w`, must begin with the shape of the mask, feature `mask`",
    ),
    "mask": (
        {"labels": ZEROS[:, :2], "mask": MASK[:, :2]},
        "The sequences must begin with the sha",
    ),
}


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_labels_weights_and_mask_have_one_value_for_each_step(name, is_static):
    settings, message = OTHER_SHAPES[name]
    with pytest.raises(ERRORS, match=message):
        loss_of(**settings, is_static=is_static)


@pytest.mark.parametrize(
    "labels",
    [sparse([0, 0], [0]), lambda: tf.ragged.constant([[0, 0], [0]], tf.float32)],
    ids=["sparse", "ragged"],
)
def test_each_sequence_needs_as_many_sparse_labels_as_steps(labels):
    with pytest.raises(ERRORS, match=r"The numbers of values, and of steps: \] \[2 1\] \[1 2\]"):
        loss_of(labels)
