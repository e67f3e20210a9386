"""Batches that are made of their tensors again, as for several replicas."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.input.packed_batches import pack_batch

V1 = tf.compat.v1


def test_a_batch_is_packed_as_it_was():
    with tf.Graph().as_default(), V1.Session() as session:
        batch = {
            "dense": tf.constant([1.0]),
            "nothing": None,
            "ragged": tf.ragged.constant([[1], [2, 3]]),
            "sparse": tf.sparse.from_dense([[0, 5], [6, 0]]),
        }
        flat = tf.nest.flatten(batch, expand_composites=True)
        packed = pack_batch(batch, [None if t is None else tf.identity(t) for t in flat])
        assert packed.pop("nothing", 1) is None
        assert packed["sparse"].shape == tf.sparse.to_dense(packed["sparse"]).shape == [2, 2]
        found = session.run(packed)
    assert found["dense"] == [1.0]
    assert found["ragged"].to_list() == [[1], [2, 3]]
    assert found["sparse"].indices.tolist() == [[0, 1], [1, 0]]
    assert found["sparse"].values.tolist() == [5, 6]
    assert found["sparse"].dense_shape.tolist() == [2, 2]


@pytest.mark.parametrize("loop", [1, 2])
@pytest.mark.parametrize("strategy", ["mirrored", "central_storage"])
def test_replicas_see_the_shape_of_a_sparse_feature(strategy, loop, tmp_path):
    def input_fn():
        data = tf.data.Dataset.from_tensor_slices(np.eye(4, dtype=np.float32)).batch(1)
        return data.map(lambda rows: {"x": tf.sparse.from_dense(tf.ensure_shape(rows, [None, 4]))})

    def model_fn(features, labels, mode):
        dense = tf.sparse.to_dense(features["x"])
        assert dense.shape.as_list() == [None, 4]
        w = V1.get_variable("w", [4, 1], initializer=V1.ones_initializer())
        loss = tf.reduce_sum(dense @ w)
        step = V1.train.get_global_step()
        train_op = V1.train.GradientDescentOptimizer(0.5).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(
        str(tmp_path), strategy=strategy, num_replicas=2, iterations_per_loop=loop
    )
    with est.Estimator(model_fn, config=config) as model:
        model.train(input_fn)
        assert model.get_variable_value("global_step") == 2
        np.testing.assert_allclose(model.get_variable_value("w"), np.full([4, 1], 0.75))
        assert model.evaluate(input_fn)["loss"] == 0.75
