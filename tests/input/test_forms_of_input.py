"""The forms that an input may have, in every mode, with and without a loop, on two replicas."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers

v1 = tf.compat.v1

Pair = collections.namedtuple("Pair", ["one", "ten"])

LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 5])
STRATEGIES = pytest.mark.parametrize("strategy", [None, "mirrored"])


def sparse_of(x):
    row = tf.range(tf.size(x, tf.int64))
    indices = tf.concat([tf.stack([row, 0 * row], 1), tf.stack([row, 0 * row + 3], 1)], 0)
    values = tf.concat([x, 10 * x], 0)
    return tf.sparse.reorder(tf.SparseTensor(indices, values, [tf.size(x, tf.int64), 4]))


def ragged_of(x):
    return tf.RaggedTensor.from_row_lengths(tf.repeat(tf.ones_like(x), x), x)


def string_number(text):
    return tf.strings.to_number(text, tf.int64)


# By name: what makes the features of a batch of int64 [batch size], and what reads it back.
FORMS = {
    "tensor": (lambda x: x, lambda f: f),
    "dict": (lambda x: {"a": x, "b": 10 * x}, lambda f: (f["a"] + f["b"]) // 11),
    "tuple": (lambda x: (x, 10 * x), lambda f: (f[0] + f[1]) // 11),
    "namedtuple": (lambda x: Pair(x, 10 * x), lambda f: (f.one + f.ten) // 11),
    "nested": (
        lambda x: {"a": (x, {"b": 10 * x}), "c": [100 * x]},
        lambda f: (f["a"][0] + f["a"][1]["b"] + tf.reshape(f["c"], [-1])) // 111,
    ),
    "matrix": (lambda x: tf.stack([x, 10 * x], 1), lambda f: tf.reduce_sum(f, 1) // 11),
    "sparse": (sparse_of, lambda f: tf.sparse.reduce_sum(f, 1) // 11),
    "ragged": (ragged_of, lambda f: tf.reduce_sum(f, 1)),
    "dict of sparse and ragged": (
        lambda x: {"s": sparse_of(x), "r": ragged_of(x), "x": x},
        lambda f: (tf.sparse.reduce_sum(f["s"], 1) + tf.reduce_sum(f["r"], 1) + f["x"]) // 13,
    ),
    "quantized": (
        lambda x: tf.bitcast(tf.cast(x, tf.uint8), tf.quint8),
        lambda f: tf.cast(tf.bitcast(f, tf.uint8), tf.int64),
    ),
    "string": (tf.strings.as_string, string_number),
    "dict of strings": (
        lambda x: {"text": tf.strings.as_string(x), "x": x},
        lambda f: (string_number(f["text"]) + f["x"]) // 2,
    ),
}


def model_fn_of(read):
    """Sums what `read` gets out of its features, and the labels; predicts it a row."""

    def model_fn(features, labels, mode):
        x = tf.cast(read(features), tf.float32)
        step = v1.train.get_or_create_global_step()
        spec = {"predictions": {"x": x, "double": 2 * x}}
        if mode != est.ModeKeys.PREDICT:
            aggregation = tf.VariableAggregation.SUM
            total = v1.get_variable(
                "sums",
                [2],
                initializer=v1.zeros_initializer(),
                trainable=False,
                aggregation=aggregation,
                use_resource=True,
            )
            spec["loss"] = tf.reduce_mean(x)
            spec["eval_metric_ops"] = {"labels": v1.metrics.mean(labels)}
            sums = [tf.reduce_sum(x), tf.cast(tf.reduce_sum(labels), tf.float32)]
            spec["train_op"] = tf.group(total.assign_add(sums), step.assign_add(1))
        return est.EstimatorSpec(mode, **spec)

    return model_fn


def make(model_dir, read, iterations_per_loop=1, strategy=None, **config):
    run_config = est.RunConfig(
        iterations_per_loop=iterations_per_loop,
        strategy=strategy,
        num_replicas=2 if strategy else None,
        save_summary_steps=None,
        **config,
    )
    return est.Estimator(model_fn_of(read), str(model_dir), run_config)


def dataset_of(write, count=12, batch_size=2):
    data = tf.data.Dataset.range(count).batch(batch_size)
    return data.map(lambda x: (write(x), -x))


@pytest.mark.each_value
@LOOPS
@STRATEGIES
@pytest.mark.parametrize("form", FORMS)
def test_a_dataset_of_any_form_trains_evaluates_and_predicts(
    tmp_path, form, strategy, iterations_per_loop
):
    write, read = FORMS[form]
    trained = make(tmp_path, read, iterations_per_loop, strategy)
    trained.train(lambda: dataset_of(write))
    assert trained.train_result.global_step == (3 if strategy else 6)
    np.testing.assert_array_equal(trained.get_variable_value("sums"), [66, -66])
    # 11 examples: the last batch is smaller, and one of two replicas has none.
    results = trained.evaluate(lambda: dataset_of(write, 11))
    np.testing.assert_allclose(results["labels"], -5)
    rows = list(trained.predict(lambda: dataset_of(write, 11)))
    assert [row["x"] for row in rows] == list(range(11))
    assert [row["double"] for row in rows] == list(range(0, 22, 2))


@pytest.mark.each_value
@LOOPS
@STRATEGIES
@pytest.mark.parametrize("form", ["tensor", "dict", "nested", "sparse", "ragged", "string"])
def test_tensors_of_a_one_shot_iterator_are_an_input(tmp_path, form, strategy, iterations_per_loop):
    write, read = FORMS[form]

    def input_fn():
        return v1.data.make_one_shot_iterator(dataset_of(write)).get_next()

    trained = make(tmp_path, read, iterations_per_loop, strategy)
    trained.train(input_fn)
    assert trained.train_result.reason == "end of input"
    assert trained.train_result.global_step == (3 if strategy else 6)
    np.testing.assert_array_equal(trained.get_variable_value("sums"), [66, -66])
    np.testing.assert_allclose(trained.evaluate(input_fn)["labels"], -5.5)
    assert [row["x"] for row in trained.predict(input_fn)] == list(range(12))


@LOOPS
@STRATEGIES
def test_constant_tensors_and_arrays_are_an_input_without_end(
    tmp_path, strategy, iterations_per_loop
):
    def input_fn():
        return {"a": np.int64([1, 2]), "b": tf.constant([10, 20], tf.int64)}, np.int64([3, 3])

    trained = make(tmp_path, FORMS["dict"][1], iterations_per_loop, strategy)
    trained.train(input_fn, steps=7)
    scale = 2 if strategy else 1
    np.testing.assert_array_equal(trained.get_variable_value("sums"), [21 * scale, 42 * scale])
    assert trained.evaluate(input_fn, steps=3)["labels"] == 3


@LOOPS
def test_random_tensors_differ_from_step_to_step_and_replica_to_replica(
    tmp_path, iterations_per_loop
):
    def model_fn(features, mode):
        step = v1.train.get_global_step()
        seen = v1.get_variable(
            "seen",
            [6, 2],
            initializer=v1.zeros_initializer(),
            trainable=False,
            aggregation=tf.VariableAggregation.SUM,
        )
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        place = tf.stack([tf.cast(step, tf.int32), tf.cast(replica, tf.int32)])
        note = seen.assign_add(tf.scatter_nd([place], features, [6, 2]))
        with tf.control_dependencies([note]):
            train_op = step.assign_add(1)
        return est.EstimatorSpec(mode, loss=features[0], train_op=train_op)

    config = est.RunConfig(
        iterations_per_loop=iterations_per_loop, strategy="mirrored", num_replicas=2
    )
    trained = est.Estimator(model_fn, str(tmp_path), config)
    trained.train(lambda: tf.random.uniform([1]), steps=6)
    assert len(set(trained.get_variable_value("seen").ravel().tolist())) == 12


@pytest.mark.usefixtures("v1_control_flow")
@pytest.mark.parametrize("config", [{"iterations_per_loop": 5}, {"strategy": "mirrored"}], ids=str)
def test_a_v1_loop_in_the_input_that_cannot_be_copied_is_an_error(config, tmp_path):
    def input_fn():
        start = v1.data.make_one_shot_iterator(tf.data.Dataset.range(6).batch(2)).get_next()
        return tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x + 1), [0, start])[1]

    config = est.RunConfig(num_replicas=2 if "strategy" in config else None, **config)
    with pytest.raises(ValueError, match=r"v1 control flow, .*enable_control_flow_v2"):
        est.Estimator(Model(), str(tmp_path), config).train(input_fn, steps=1)


@LOOPS
def test_a_queue_of_old_is_an_input(tmp_path, iterations_per_loop):
    def input_fn():
        queue = v1.train.range_input_producer(12, num_epochs=1, shuffle=False)
        x = tf.cast(v1.train.batch([queue.dequeue()], 2), tf.int64)
        return x, -x

    trained = make(tmp_path, FORMS["tensor"][1], iterations_per_loop)
    trained.train(input_fn)
    assert trained.train_result.global_step == 6
    np.testing.assert_array_equal(trained.get_variable_value("sums"), [66, -66])
    np.testing.assert_allclose(trained.evaluate(input_fn)["labels"], -5.5)


@LOOPS
def test_a_table_in_the_input_is_filled(tmp_path, iterations_per_loop):
    def input_fn():
        words = [f"w{i}" for i in range(6)]
        initializer = tf.lookup.KeyValueTensorInitializer(words, np.arange(6), value_dtype=tf.int64)
        table = tf.lookup.StaticHashTable(initializer, -1)
        data = tf.data.Dataset.from_tensor_slices(words).batch(2)
        return data.map(lambda text: (table.lookup(text), table.lookup(text)))

    trained = make(tmp_path, FORMS["tensor"][1], iterations_per_loop)
    trained.train(input_fn)
    np.testing.assert_array_equal(trained.get_variable_value("sums"), [15, 15])
    np.testing.assert_allclose(trained.evaluate(input_fn)["labels"], 2.5)
    assert [row["x"] for row in trained.predict(input_fn)] == list(range(6))


@LOOPS
def test_a_table_in_the_model_is_filled(tmp_path, iterations_per_loop):
    def read(features):
        with tf.init_scope():
            initializer = tf.lookup.KeyValueTensorInitializer(
                ["a", "b"], tf.constant([1, 2], tf.int64)
            )
            table = tf.lookup.StaticHashTable(initializer, -1)
        return table.lookup(features)

    def input_fn():
        data = tf.data.Dataset.from_tensor_slices(["a", "b", "c"]).batch(1)
        return data.map(lambda text: (text, tf.constant([1])))

    trained = make(tmp_path, read, iterations_per_loop)
    trained.train(input_fn)
    np.testing.assert_array_equal(trained.get_variable_value("sums"), [2, 3])
    assert [row["x"] for row in trained.predict(input_fn)] == [1, 2, -1]


@STRATEGIES
def test_input_fn_gets_what_it_names(tmp_path, strategy):
    given = []

    def input_fn(params, mode, config, input_context):
        given.append((params, mode, config.model_dir, input_context))
        return dataset_of(FORMS["tensor"][0])

    config = {"strategy": strategy, "num_replicas": 2} if strategy else {}
    sums = model_fn_of(FORMS["tensor"][1])

    def model_fn(features, labels, mode, params):
        return sums(features, labels, mode)

    trained = est.Estimator(model_fn, str(tmp_path), est.RunConfig(**config), {"depth": 3})
    trained.train(input_fn, steps=1)
    trained.evaluate(input_fn)
    next(trained.predict(input_fn))
    modes = [est.ModeKeys.TRAIN, est.ModeKeys.EVAL, est.ModeKeys.PREDICT]
    assert [mode for _, mode, _, _ in given] == modes
    assert [model_dir for _, _, model_dir, _ in given] == [str(tmp_path)] * 3
    for params, _, _, context in given:
        assert params == {"depth": 3}
        assert context.num_input_pipelines == 1
        assert context.input_pipeline_id == 0
        assert context.num_replicas_in_sync == (2 if strategy else 1)


def test_a_tpu_estimators_input_fn_gets_the_batch_size_of_a_replica(tmp_path):
    given = []

    def input_fn(params, **others):
        given.append(params["batch_size"])
        assert sorted(others) == []
        return dataset_of(FORMS["tensor"][0], 32, params["batch_size"])

    config = est.tpu.RunConfig(
        tpu_config=est.tpu.TPUConfig(iterations_per_loop=2), strategy="mirrored", num_replicas=2
    )
    trained = est.tpu.TPUEstimator(
        model_fn_of(FORMS["tensor"][1]),
        str(tmp_path),
        config,
        train_batch_size=8,
        eval_batch_size=4,
        predict_batch_size=16,
    )
    trained.train(input_fn, steps=4)
    trained.evaluate(input_fn)
    next(trained.predict(input_fn))
    assert given == [4, 2, 8]
    np.testing.assert_array_equal(trained.get_variable_value("sums"), [496, -496])


@LOOPS
def test_model_fn_gets_what_it_names_and_labels_may_be_left_out(tmp_path, iterations_per_loop):
    given = []

    def model_fn(features, mode, params, config):
        given.append((mode, params, config.model_dir))
        step = v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=tf.reduce_mean(features), train_op=step)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop)
    trained = est.Estimator(model_fn, str(tmp_path), config, {"depth": 3})
    trained.train(lambda: tf.data.Dataset.from_tensors([1.0]).repeat(), steps=5)
    assert given == [("train", {"depth": 3}, str(tmp_path))]
    assert trained.train_result.loss == 1.0


@LOOPS
def test_features_and_labels_may_be_a_list_of_two(tmp_path, iterations_per_loop):
    trained = make(tmp_path, FORMS["tensor"][1], iterations_per_loop)
    trained.train(lambda: [tf.constant([1], tf.int64), tf.constant([2], tf.int64)], steps=5)
    np.testing.assert_array_equal(trained.get_variable_value("sums"), [5, 10])


def test_whole_batches_of_predictions_come_as_they_are(tmp_path):
    write, read = FORMS["dict"]
    trained = make(tmp_path, read)
    trained.train(lambda: dataset_of(write), steps=1)
    batches = list(
        trained.predict(
            lambda: dataset_of(write, 5), predict_keys=["x"], yield_single_examples=False
        )
    )
    assert [sorted(batch) for batch in batches] == [["x"]] * 3
    assert [batch["x"].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]


def test_predictions_may_be_sparse(tmp_path):
    def model_fn(features, mode):
        step = v1.train.get_or_create_global_step().assign_add(1)
        return est.EstimatorSpec(
            mode,
            loss=tf.reduce_sum(tf.cast(features, tf.float32)),
            train_op=step,
            predictions={"s": sparse_of(features)},
        )

    trained = est.Estimator(model_fn, str(tmp_path))
    data = lambda: tf.data.Dataset.range(1, 4).batch(3)  # noqa: E731
    trained.train(data)
    (batch,) = trained.predict(data, yield_single_examples=False)
    assert batch["s"].values.tolist() == [1, 10, 2, 20, 3, 30]


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_what_a_partial_has_bound_stays_as_it_is(verb, tmp_path):
    """The rest is given by name; an input_fn is given nothing for its `**kwargs`."""
    seen = {}

    def input_fn(mode, params, config, **others):
        seen["input"] = [mode, params, config.tf_random_seed, others]
        return tf.data.Dataset.range(3)

    def model_fn(features, labels, mode, params, **others):
        seen["model"] = [mode, params, sorted(others)]
        return Model()(features, labels, mode)

    config = est.RunConfig(tf_random_seed=7)
    bound = functools.partial(model_fn, params={"rate": 2}, config=None)
    with est.Estimator(bound, str(tmp_path), config) as model:
        model.train(numbers(), steps=1)
        own = functools.partial(input_fn, params={"rate": 3}, mode="mine", files=[])
        getattr(model, verb)(own, steps=1)
    assert seen["input"] == ["mine", {"rate": 3}, 7, {"files": []}]
    assert seen["model"] == [verb.removesuffix("uate"), {"rate": 2}, ["config"]]


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_what_cannot_be_fed_is_an_error_that_names_it(verb, tmp_path):
    def input_fn():
        data = tf.data.Dataset.range(4).batch(2)
        return data.map(lambda x: ({"x": x, "o": tf.experimental.Optional.from_value(x)}, x))

    model = est.Estimator(Model(), str(tmp_path))
    with pytest.raises(TypeError, match=r"yields .*'o': OptionalSpec.* take the tensors out of it"):
        list(getattr(model, verb)(input_fn))


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_a_tensor_array_is_an_error(verb, tmp_path):
    def input_fn():
        data = tf.data.Dataset.range(4).batch(2)
        return data.map(lambda x: {"a": tf.TensorArray(tf.int64, 2).unstack(x)})

    model = est.Estimator(Model(), str(tmp_path))
    with pytest.raises(TypeError, match=r"yields a TensorArray .* Yield its `stack\(\)`"):
        list(getattr(model, verb)(input_fn))
