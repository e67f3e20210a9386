"""A `.meta` file, which programs import to go on without the code of the model."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance.cases import STRATEGIES
from tests.toy import RATE, numbers, weight_after

V1 = tf.compat.v1


def make_model_fn(accumulate_steps):
    def model_fn(features, labels, mode):
        features = tf.cast(features, tf.float32)
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        loss = V1.losses.mean_squared_error(features, tf.fill(tf.shape(features), w)) / 2
        V1.summary.scalar("w", w)
        # A tensor at the top of the graph has this name, too.
        V1.add_to_collection("mine", tf.identity(loss, "global_step"))
        tf.cond(loss > 0, lambda: V1.add_to_collection("mine", loss + 1) or 0, lambda: 0)
        optimizer = V1.train.GradientDescentOptimizer(RATE)
        if accumulate_steps > 1:
            optimizer = est.tpu.CrossShardOptimizer(optimizer, accumulate_steps=accumulate_steps)
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


@pytest.mark.each_value
@pytest.mark.parametrize("is_saved_by_hook", [False, True])
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
@pytest.mark.parametrize(("loop", "accumulate_steps"), [(1, 1), (100, 1), (1, 2), (100, 2)])
def test_it_is_imported_and_restores_its_checkpoint(
    loop, accumulate_steps, strategy, is_saved_by_hook, tmp_path
):
    config = est.RunConfig(iterations_per_loop=loop, **STRATEGIES[strategy])
    hooks = [V1.train.CheckpointSaverHook(str(tmp_path), save_steps=3)] if is_saved_by_hook else []
    with est.Estimator(make_model_fn(accumulate_steps), str(tmp_path), config) as model:
        model.train(numbers(), hooks, steps=3)
        weight = model.get_variable_value("w")
    num_replicas = 1 if strategy == "no_strategy" else 2
    per_step = accumulate_steps * num_replicas
    np.testing.assert_allclose(
        weight, weight_after(np.arange(3 * per_step).reshape([3, per_step])), rtol=1e-6
    )
    with tf.Graph().as_default() as graph:
        path = str(tmp_path / "model.ckpt-3")
        saver = V1.train.import_meta_graph(path + ".meta")
        collected = [value for key in graph.collections for value in graph.get_collection(key)]
        assert all(value.graph is graph for value in collected if tf.is_tensor(value))
        devices = V1.ConfigProto(device_count={"CPU": num_replicas})
        with V1.Session(config=devices) as session:
            saver.restore(session, path)
            assert session.run("w/Read/ReadVariableOp:0") == weight
            assert session.run("global_step/Read/ReadVariableOp:0") == 3


def test_saving_leaves_the_collections_as_they_are(tmp_path):
    class Look(est.CheckpointSaverListener):
        def __init__(self):
            self.sizes = []

        def before_save(self, session, global_step_value):
            keys = session.graph.get_all_collection_keys()
            self.sizes.append({str(k): len(session.graph.get_collection(k)) for k in keys})

    look = Look()
    config = est.RunConfig(iterations_per_loop=10, save_checkpoints_steps=5)
    with est.Estimator(make_model_fn(1), str(tmp_path), config) as model:
        model.train(numbers(), steps=10, saving_listeners=[look])
    assert look.sizes[0] == look.sizes[1]
    assert look.sizes[0]["summaries"] == 1
    assert look.sizes[0]["losses"] == 2  # The model's own, and that of its spec.
    assert look.sizes[0]["mine"] == 2


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
@pytest.mark.parametrize("loop", [1, 10])
def test_saving_adds_no_op_to_the_graph(loop, strategy, tmp_path):
    class Count(est.CheckpointSaverListener):
        def __init__(self):
            self.counts = []

        def before_save(self, session, global_step_value):
            self.counts.append(len(session.graph.get_operations()))

    def model_fn(features, labels, mode):
        V1.get_variable(
            "seen",
            [],
            initializer=V1.zeros_initializer(),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
        return make_model_fn(1)(features, labels, mode)

    count = Count()
    config = est.RunConfig(
        iterations_per_loop=loop, save_checkpoints_steps=5, **STRATEGIES[strategy]
    )
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(numbers(), steps=15, saving_listeners=[count])
    assert len(count.counts) >= 3
    assert len(set(count.counts)) == 1
