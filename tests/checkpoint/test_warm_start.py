"""A new model starts at the weights of an old one: fast, logged, strict."""

import glob
import logging
import os

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.toy import numbers

V1 = tf.compat.v1
STRATEGIES = [None, "mirrored", "central_storage"]

# What the old model's checkpoint holds; "emb" is partitioned there.
OLD = {
    "dense/kernel": np.float32([[7.0]]),
    "dense/bias": np.float32([3.0]),
    "dense/bias/Momentum": np.float32([100.0]),
    "emb": np.arange(8, dtype=np.float32).reshape([4, 2]),
    "head": np.arange(12, dtype=np.float32).reshape([3, 4]),
    "mean": np.float32(5.0),
    "global_step": np.int64(40),
}


def constant(value):
    """An initializer of that value, also of the parts of a partitioned variable."""

    def initialize(shape, dtype=None, partition_info=None):
        return (
            value if partition_info is None else tf.slice(value, partition_info.var_offset, shape)
        )

    return initialize


def save(path, values, num_parts=1):
    """Writes a checkpoint as a v1 program would."""
    with tf.Graph().as_default(), V1.Session() as session:
        partitioner = V1.fixed_size_partitioner(num_parts)
        for name, value in values.items():
            parts = {"partitioner": partitioner} if name == "emb" else {}
            V1.get_variable(name, value.shape, value.dtype, constant(value), **parts)
        session.run(V1.global_variables_initializer())
        return V1.train.Saver().save(session, str(path))


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return save(tmp_path_factory.mktemp("old") / "model.ckpt-40", OLD, num_parts=2)


def make_config(strategy=None, iterations_per_loop=1):
    return est.RunConfig(
        iterations_per_loop=iterations_per_loop,
        strategy=strategy,
        num_replicas=2 if strategy else None,
        save_summary_steps=None,
        log_step_count_steps=None,
    )


def started(model_dir, build, warm_start_from, strategy=None, iterations_per_loop=1, **scaffold):
    """The variables of a model after two steps that change the global step alone."""

    def model_fn(features, mode):
        build()
        loss = tf.reduce_mean(tf.cast(features, tf.float32))
        made = {name: make() for name, make in scaffold.items()}
        return est.EstimatorSpec(
            mode,
            loss=loss,
            train_op=V1.train.get_global_step().assign_add(1),
            scaffold=V1.train.Scaffold(**made),
        )

    config = make_config(strategy, iterations_per_loop)
    model = est.Estimator(model_fn, str(model_dir), config, warm_start_from=warm_start_from)
    model.train(numbers(), steps=2)
    return {name: model.get_variable_value(name) for name in model.get_variable_names()}


def variable(name, value, trainable=True, **arguments):
    """A function that makes a variable of that value."""
    value = np.asarray(value, np.float32)
    return lambda: V1.get_variable(
        name, value.shape, tf.float32, constant(value), trainable=trainable, **arguments
    )


def check(values, expected):
    assert {name: values[name].tolist() for name in expected} == expected


# --- The table -----------------------------------------------------------------------------------


def v1_layer(x):
    with V1.variable_scope("dense"):
        kernel = V1.get_variable("kernel", [1, 1])
        bias = V1.get_variable("bias", [1], initializer=V1.zeros_initializer())
    return x @ kernel + bias, bias


def keras_layer(x):
    layer = tf.keras.layers.Dense(1, name="dense")
    return layer(x), layer.bias.value


def tf_keras_layer(x):
    layer = tf_keras.layers.Dense(1, name="dense")
    return layer(x), layer.bias


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 10])
@pytest.mark.parametrize("layer", [v1_layer, keras_layer, tf_keras_layer])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_weights_start_at_the_old_ones_and_train_on(
    tmp_path, old, strategy, layer, iterations_per_loop
):
    def model_fn(features, mode):
        y, bias = layer(tf.reshape(tf.cast(features, tf.float32), [-1, 1]))
        optimizer = V1.train.MomentumOptimizer(0.5, 1.0)
        train_op = optimizer.minimize(
            tf.reduce_mean(y), V1.train.get_global_step(), var_list=[bias]
        )
        return est.EstimatorSpec(mode, loss=tf.reduce_mean(y), train_op=train_op)

    config = make_config(strategy, iterations_per_loop)
    model = est.Estimator(model_fn, str(tmp_path), config, warm_start_from=old)
    for steps, step, momentum, bias in ((2, 2, 2.0, 1.5), (12, 14, 14.0, 3 - 0.5 * 105)):
        # The gradient is 1 and the momentum counts steps. The second training goes on from the
        # first one's checkpoint.
        model.train(numbers(), steps=steps)
        values = {name: model.get_variable_value(name) for name in model.get_variable_names()}
        check(
            values,
            {
                "global_step": step,
                "dense/kernel": [[7.0]],
                "dense/bias": [bias],
                "dense/bias/Momentum": [momentum],
            },
        )


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 10])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("library", [tf.keras, tf_keras], ids=["keras", "tf_keras"])
def test_moving_statistics_start_at_the_old_ones_on_every_replica(
    tmp_path, library, strategy, iterations_per_loop
):
    old = save(
        tmp_path / "old.ckpt",
        {
            "norm/gamma": np.float32([2.0]),
            "norm/beta": np.float32([1.0]),
            "norm/moving_mean": np.float32([6.0]),
            "norm/moving_variance": np.float32([4.0]),
            "global_step": np.int64(40),
        },
    )

    def model_fn(features, mode):
        norm = library.layers.BatchNormalization(epsilon=0.0, name="norm")
        y = norm(tf.reshape(tf.cast(features, tf.float32), [-1, 1]), training=False)
        train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, predictions=y, loss=tf.reduce_mean(y), train_op=train_op)

    model = est.Estimator(
        model_fn,
        str(tmp_path / "new"),
        make_config(strategy, iterations_per_loop),
        warm_start_from=est.WarmStartSettings(old, [".*"]),
    )
    model.train(numbers(), steps=2)
    assert model.get_variable_value("norm/moving_mean") == [6.0]
    assert model.get_variable_value("global_step") == 42
    # The last step's features are 1, and under two replicas 2 and 3: 2 (x - 6) / 2 + 1.
    assert model.train_result.loss == (-4.0 if strategy is None else -2.5)
    predictions = list(model.predict(numbers(count=3)))
    assert predictions == [[-5.0], [-4.0], [-3.0]]


def build_all():
    """The old model's variables with other values, and one that it lacks."""
    for name in ("dense/kernel", "dense/bias", "emb", "head"):
        variable(name, np.zeros_like(OLD[name]))()
    for name in ("dense/bias/Momentum", "mean"):
        variable(name, np.zeros_like(OLD[name]), trainable=False)()
    variable("new", 1.0, trainable=False)()


NEW = {"dense/kernel": [[0.0]], "dense/bias": [0.0], "dense/bias/Momentum": [0.0], "mean": 0.0}


@pytest.mark.parametrize(
    ("choice", "loaded"),
    [
        (".*", ["dense/kernel", "dense/bias"]),
        ("dense", ["dense/kernel", "dense/bias"]),
        (".*bias", ["dense/bias"]),
        (["dense", "mean"], ["dense/kernel", "dense/bias", "dense/bias/Momentum", "mean"]),
        (["dense/bias[^/]"], ["dense/bias"]),  # Names end with ":0", in the old documentation.
        (["dense/bias$"], ["dense/bias"]),
        (["dense/bias:0"], ["dense/bias"]),
        ([tf.Variable([0.0], name="dense/bias")], ["dense/bias"]),
    ],
    ids=str,
)
def test_a_string_chooses_among_the_trainable_and_a_list_among_all(tmp_path, old, choice, loaded):
    values = started(tmp_path, build_all, est.WarmStartSettings(old, choice))
    check(values, {**NEW, "new": 1.0, **{name: OLD[name].tolist() for name in loaded}})
    assert values["global_step"] == 2


def test_a_list_that_matches_the_global_step_goes_on_counting(tmp_path, old):
    settings = est.WarmStartSettings(old, ["global_step", "mean"])
    assert started(tmp_path, build_all, settings)["global_step"] == 42


# --- Where from ----------------------------------------------------------------------------------


def build_dense():
    for name in ("dense/kernel", "dense/bias"):
        variable(name, np.zeros_like(OLD[name]))()


DENSE = {name: OLD[name].tolist() for name in ("dense/kernel", "dense/bias")}


def test_a_directory_gives_its_newest_checkpoint(tmp_path, old):
    check(started(tmp_path, build_dense, os.path.dirname(old)), DENSE)


def test_a_directory_of_an_estimator_gives_what_it_trained_last(tmp_path):
    def model_fn(features, mode):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        train_op = tf.group(w.assign_add(1.0), V1.train.get_global_step().assign_add(1))
        return est.EstimatorSpec(mode, loss=w + 0.0, train_op=train_op)

    config = est.RunConfig(save_checkpoints_steps=2)
    first = est.Estimator(model_fn, str(tmp_path / "first"), config)
    # Made before there is anything to start from.
    second = est.Estimator(
        model_fn, str(tmp_path / "second"), config, warm_start_from=first.model_dir
    )
    first.train(numbers(), steps=5)
    second.train(numbers(), steps=2)
    assert second.get_variable_value("w") == 7.0
    assert second.get_variable_value("global_step") == 2


def test_a_saved_model_of_an_estimator_is_a_place_to_start_from(tmp_path, old):
    def model_fn(features, mode):
        y, _ = v1_layer(tf.cast(tf.reshape(features, [-1, 1]), tf.float32))
        train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, predictions=y, loss=tf.reduce_mean(y), train_op=train_op)

    x = tf.TensorSpec([None, 1], tf.float32)
    receiver_fn = est.export.build_raw_serving_input_receiver_fn({"x": x})
    first = est.Estimator(
        lambda features, mode: model_fn(
            features["x"] if isinstance(features, dict) else features, mode
        ),
        str(tmp_path / "first"),
        warm_start_from=old,
    )
    first.train(numbers(), steps=1)
    exported = first.export_saved_model(str(tmp_path / "export"), receiver_fn)
    assert isinstance(exported, bytes)
    check(started(tmp_path / "second", build_dense, exported), DENSE)


@pytest.mark.parametrize("save_it", [tf.saved_model.save, tf.train.Checkpoint.write])
def test_what_was_saved_by_objects_is_found_by_the_variables_names(tmp_path, save_it):
    root = tf.Module() if save_it is tf.saved_model.save else tf.train.Checkpoint()
    root.kernel = tf.Variable(OLD["dense/kernel"], name="dense/kernel")
    root.other = tf.Variable(OLD["dense/bias"], name="other")
    path = str(tmp_path / "old")
    args = (root, path) if save_it is tf.saved_model.save else (root, path)
    save_it(*args)
    for old_name in ("other", "other/.ATTRIBUTES/VARIABLE_VALUE"):
        settings = est.WarmStartSettings(path, var_name_to_prev_var_name={"dense/bias": old_name})
        check(started(tmp_path / old_name[-5:], build_dense, settings), DENSE)


def test_of_old_variables_of_one_name_the_settings_name_one(tmp_path):
    values = {"first": 3.0, "second": 4.0}
    root = {key: tf.Variable([value], name="dense/bias") for key, value in values.items()}
    path = tf.train.Checkpoint(**root).write(str(tmp_path / "old"))

    def build():
        variable("dense/bias", [0.0])()

    with pytest.raises(ValueError, match="2 variables have the name 'dense/bias': first/.*second/"):
        started(tmp_path / "model", build, est.WarmStartSettings(path))
    for key, value in values.items():
        names = {"dense/bias": f"{key}/.ATTRIBUTES/VARIABLE_VALUE"}
        settings = est.WarmStartSettings(path, var_name_to_prev_var_name=names)
        check(started(tmp_path / key, build, settings), {"dense/bias": [value]})


def test_several_variables_start_at_one_old_one(tmp_path, old):
    def build():
        for name in ("dense/bias", "a", "b"):
            variable(name, [0.0])()

    names = {"a": "dense/bias", "b": "dense/bias/Momentum"}
    settings = est.WarmStartSettings(old, ".*", None, names)
    check(started(tmp_path, build, settings), {"dense/bias": [3.0], "a": [3.0], "b": [100.0]})


@pytest.mark.parametrize("num_parts", [1, 2, 3])
@pytest.mark.parametrize("name", ["emb", "renamed"])
def test_a_partitioned_variable_starts_at_one_of_other_parts(tmp_path, old, name, num_parts):
    def build():
        partitioner = V1.fixed_size_partitioner(num_parts)
        variable(name, np.zeros([4, 2]), partitioner=partitioner)()

    settings = est.WarmStartSettings(old, var_name_to_prev_var_name={name: "emb"})
    check(started(tmp_path, build, settings), {name: OLD["emb"].tolist()})


# --- When ----------------------------------------------------------------------------------------


def test_a_model_that_has_a_checkpoint_goes_on_from_it(tmp_path, old, caplog):
    started(tmp_path, build_dense, None)
    with caplog.at_level(logging.INFO, "estimator"):
        values = started(tmp_path, build_dense, "/nowhere")
    check(values, {"global_step": 4, "dense/kernel": [[0.0]]})
    said = f"`warm_start_from` is not used: training resumes from {tmp_path}/model.ckpt-2."
    assert caplog.messages.count(said) == 1


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 10])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_averages_start_at_the_weights_that_are_loaded(
    tmp_path, old, strategy, iterations_per_loop
):
    def build():
        weight = variable("dense/bias", [0.0])()
        tf.train.ExponentialMovingAverage(0.9).apply([weight])

    values = started(tmp_path, build, old, strategy, iterations_per_loop)
    check(values, {"dense/bias/ExponentialMovingAverage": [3.0]})


@pytest.mark.parametrize("dtype", [tf.float32, tf.int32])
def test_a_sum_over_replicas_stays_the_sum(tmp_path, dtype):
    old = save(tmp_path / "old.ckpt", {"count": np.full([1], 8, dtype.as_numpy_dtype)})

    def build():
        rules = {
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.SUM,
        }
        zeros = V1.zeros_initializer()
        V1.get_variable("count", [1], dtype, zeros, trainable=False, **rules)

    settings = est.WarmStartSettings(old, ["count"])
    check(started(tmp_path / "new", build, settings, "mirrored"), {"count": [8]})


def test_the_init_fn_of_a_scaffold_sees_what_is_loaded_and_has_the_last_word(tmp_path, old):
    seen = []

    def make_init_fn():
        kernel, bias = V1.trainable_variables()

        def init_fn(scaffold, session):
            seen.append(session.run(kernel).tolist())
            bias.load([8.0], session)

        return init_fn

    values = started(tmp_path, build_dense, old, init_fn=make_init_fn)
    assert seen == [[[7.0]]]
    check(values, {"dense/kernel": [[7.0]], "dense/bias": [8.0]})


def test_the_init_op_of_a_scaffold_does_not_undo_it(tmp_path, old):
    init_op = V1.global_variables_initializer
    check(started(tmp_path, build_dense, old, init_op=init_op), DENSE)


def test_a_tpu_estimator_starts_at_the_old_weights(tmp_path, old):
    def model_fn(features, mode, params):
        build_dense()
        train_op = V1.train.get_global_step().assign_add(1)
        loss = tf.reduce_mean(tf.cast(features, tf.float32))
        return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    model = est.tpu.TPUEstimator(model_fn, str(tmp_path), train_batch_size=4, warm_start_from=old)
    model.train(numbers(), steps=3)
    assert model.get_variable_value("dense/kernel") == [[7.0]]


# --- Vocabularies --------------------------------------------------------------------------------

OLD_WORDS = ("ape", "bear", "cat", "dog")
NEW_WORDS = ("dog", "gnu", "ape")


@pytest.fixture
def vocab_info(tmp_path):
    """Makes VocabInfos of the two vocabularies."""

    def make(num_oov_buckets=0, new_vocab_size=3, **fields):
        for name, words in (("old", OLD_WORDS), ("new", NEW_WORDS)):
            (tmp_path / name).write_text("\n".join(words))  # The last line has no end.
        new, old = str(tmp_path / "new"), str(tmp_path / "old")
        return est.VocabInfo(new, new_vocab_size, num_oov_buckets, old, **fields)

    return make


def moved(tmp_path, old, name, shape, info, **arguments):
    settings = est.WarmStartSettings(old, None, {name: info})
    build = variable(name, np.full(shape, -1.0), **arguments)
    return started(tmp_path / "model", build, settings)[name].tolist()


def counting(shape, dtype):
    """An initializer whose values are 1000, 1001, ..."""
    return tf.cast(tf.reshape(1000 + tf.range(tf.reduce_prod(shape)), shape), dtype)


@pytest.mark.parametrize("num_parts", [1, 2])
def test_rows_follow_the_vocabulary_and_the_rest_is_from_the_backup(
    tmp_path, old, vocab_info, num_parts
):
    info = vocab_info(2, backup_initializer=counting)
    partitioner = V1.fixed_size_partitioner(num_parts)
    assert moved(tmp_path, old, "emb", [5, 2], info, partitioner=partitioner) == [
        [6.0, 7.0],  # dog
        [1002.0, 1003.0],  # gnu
        [0.0, 1.0],  # ape
        [1006.0, 1007.0],
        [1008.0, 1009.0],
    ]


def test_rows_that_are_new_are_zeros_without_a_backup(tmp_path, old, vocab_info):
    rows = moved(tmp_path, old, "emb", [4, 2], vocab_info(1))
    assert rows == [[6.0, 7.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]


def test_columns_follow_the_vocabulary(tmp_path, old, vocab_info):
    info = vocab_info(1, axis=1, backup_initializer=V1.constant_initializer(9.0))
    assert moved(tmp_path, old, "head", [3, 4], info) == [
        [3.0, 9.0, 0.0, 9.0],
        [7.0, 9.0, 4.0, 9.0],
        [11.0, 9.0, 8.0, 9.0],
    ]


def test_a_vector_follows_the_vocabulary(tmp_path, vocab_info):
    old = save(tmp_path / "old.ckpt", {"bias": np.float32([1.0, 2.0, 3.0, 4.0])})
    assert moved(tmp_path, old, "bias", [3], vocab_info()) == [4.0, 0.0, 1.0]


def test_only_the_first_entries_of_either_vocabulary_are_used(tmp_path, old, vocab_info):
    info = vocab_info(new_vocab_size=2, old_vocab_size=3)
    assert moved(tmp_path, old, "emb", [2, 2], info) == [[0.0, 0.0], [0.0, 0.0]]
    info = vocab_info(new_vocab_size=1, old_vocab_size=4)
    assert moved(tmp_path / "other", old, "emb", [1, 2], info) == [[6.0, 7.0]]


@pytest.mark.parametrize(
    "initializer",
    [
        V1.ones_initializer,
        V1.ones_initializer(),
        tf.keras.initializers.Ones(),
        tf_keras.initializers.Ones(),
        lambda shape: np.ones(shape, np.float32),
    ],
    ids=["class", "v1", "keras", "tf_keras", "function"],
)
def test_a_backup_is_any_initializer(tmp_path, old, vocab_info, initializer):
    info = vocab_info(backup_initializer=initializer)
    assert moved(tmp_path, old, "emb", [3, 2], info)[1] == [1.0, 1.0]


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 10])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_vocabulary_may_have_another_name_and_others_none(
    tmp_path, old, vocab_info, strategy, iterations_per_loop
):
    def build():
        build_dense()
        variable("words", np.zeros([3, 2]))()

    settings = est.WarmStartSettings(old, ".*", {"words": vocab_info()}, {"words": "emb"})
    values = started(tmp_path / "model", build, settings, strategy, iterations_per_loop)
    check(values, {**DENSE, "words": [[6.0, 7.0], [0.0, 0.0], [0.0, 1.0]]})


def test_none_chooses_those_with_vocabularies_only(tmp_path, old, vocab_info):
    def build():
        build_dense()
        variable("emb", np.zeros([3, 2]))()

    settings = est.WarmStartSettings(old, None, {"emb": vocab_info()})
    values = started(tmp_path / "model", build, settings)
    check(values, {"dense/bias": [0.0], "emb": [[6.0, 7.0], [0.0, 0.0], [0.0, 1.0]]})


def test_an_entry_twice_in_the_old_vocabulary_is_an_error(tmp_path, old, vocab_info):
    info = vocab_info()
    (tmp_path / "old").write_text("ape\ndog\nape\ncat\n")
    with pytest.raises(ValueError, match="cannot be loaded .*ape"):
        moved(tmp_path, old, "emb", [3, 2], info)
    assert not (tmp_path / "model").exists()


# --- What it says --------------------------------------------------------------------------------


def test_the_log_has_a_line_for_each_variable_loaded_or_fresh(tmp_path, old, vocab_info, caplog):
    def build():
        build_dense()
        variable("emb", np.zeros([4, 2]))()
        variable("new", [1.0])()
        variable("other", [1.0], trainable=False)()

    settings = est.WarmStartSettings(old, "dense|emb", {"emb": vocab_info(1)})
    settings = settings.replace(var_name_to_prev_var_name={"dense/bias": "dense/bias/Momentum"})
    with caplog.at_level(logging.INFO, "estimator"):
        started(tmp_path / "model", build, settings)
    (table,) = (message for message in caplog.messages if message.startswith("Warm start"))
    first, *lines = table.splitlines()
    assert first.startswith(f"Warm start from {old}: 3 variables loaded (4e-05 MB in ")
    assert lines == [
        "  loaded  dense/kernel (1, 1)",
        "  loaded  dense/bias   (1,) from dense/bias/Momentum",
        "  loaded  emb          (4, 2) 2 of 3 entries are in the old vocabulary",
        "  fresh   new",
        "  fresh, not trainable (2): global_step, other",
        "  skipped, only in the checkpoint (4): dense/bias, global_step, head, mean",
    ]


def test_damaged_values_are_an_error_and_leave_no_model(tmp_path):
    old = save(tmp_path / "old.ckpt", {"dense/kernel": OLD["dense/kernel"]})
    (data,) = glob.glob(old + ".data-*")
    with open(data, "wb") as file:
        file.write(b"\xff" * 4)
    with pytest.raises(ValueError, match=f"the values in {old} cannot be loaded .*Checksum does"):
        started(tmp_path / "new", variable("dense/kernel", [[0.0]]), old)
    assert not (tmp_path / "new").exists()
