"""The layers of tf.contrib.layers, and its `optimize_loss`."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from estimator.compat.contrib import make_contrib
from tests.compat.in_session import run

contrib = make_contrib(has_slim=False)

V1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def random():
    return np.random.default_rng(0)


def names():
    return [variable.op.name for variable in V1.global_variables()]


def test_layer_norm_is_that_of_numpy_under_its_old_names(random):
    x = random.normal(size=[3, 4, 5]).astype("float32")
    last = contrib.layers.layer_norm(x, begin_norm_axis=-1, begin_params_axis=-1)
    rest = contrib.layers.layer_norm(x, center=False, activation_fn=tf.nn.relu, scope="other")
    found, relu = run(last, rest)
    np.testing.assert_allclose(
        found, (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True), rtol=1e-4, atol=1e-5
    )
    by_example = x.reshape(3, -1)
    normal = (by_example - by_example.mean(1)[:, None]) / by_example.std(1)[:, None]
    np.testing.assert_allclose(relu.reshape(3, -1), np.maximum(normal, 0), rtol=1e-4, atol=1e-5)
    assert names() == ["LayerNorm/beta", "LayerNorm/gamma", "other/gamma"]


def test_fully_connected_and_conv2d_are_the_ops_of_tf_nn(random):
    x = random.normal(size=[2, 6, 6, 3]).astype("float32")
    y = contrib.layers.conv2d(
        x, 4, 3, stride=2, weights_regularizer=contrib.layers.l2_regularizer(0.5)
    )
    z = contrib.layers.fully_connected(
        contrib.layers.flatten(y), 5, biases_initializer=V1.ones_initializer()
    )
    weights = V1.global_variables()
    assert names() == [
        *("Conv/weights", "Conv/biases"),
        *("fully_connected/weights", "fully_connected/biases"),
    ]
    again = tf.nn.relu(tf.nn.conv2d(x, weights[0], 2, "SAME"))
    lines = tf.nn.relu(tf.reshape(again, [2, -1]) @ weights[2] + 1)
    loss = V1.losses.get_regularization_loss()
    found = run(y, again, z, lines, loss, tf.reduce_sum(weights[0] ** 2) / 4)
    for one, other in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", ["fully_connected", "conv2d"])
def test_a_normalizer_takes_the_place_of_biases(layer, random):
    x = random.normal(size=[5, 2, 2, 3]).astype("float32")
    sizes = {"fully_connected": [4], "conv2d": [4, 1]}[layer]
    outputs = getattr(contrib.layers, layer)(
        x,
        *sizes,
        normalizer_fn=contrib.layers.batch_norm,
        normalizer_params={"scale": True, "epsilon": 0.5},
        outputs_collections="outputs",
        scope="s",
    )
    assert V1.get_collection("outputs") == [outputs]
    assert names() == ["s/weights", *(f"s/BatchNorm/{n}" for n in ("beta", "gamma", *MOVING))]
    found, weights = run(outputs, V1.global_variables()[0])
    raw = x @ weights.reshape(3, 4)  # A convolution by kernels of one pixel, too.
    normal = (raw - raw.mean((0, 1, 2))) / np.sqrt(raw.var((0, 1, 2)) + 0.5)
    np.testing.assert_allclose(found, np.maximum(normal, 0), rtol=1e-4, atol=1e-5)


MOVING = ("moving_mean", "moving_variance")


@pytest.mark.parametrize(
    "given",
    [{"batch_weights": [1.0, 2.0]}, {"zero_debias_moving_mean": True}, {"is_training": ...}],
    ids=str,
)
def test_batch_norm_says_what_it_does_not_take(given):
    given = {name: tf.constant(True) if one is ... else one for name, one in given.items()}
    message = (
        "takes no `batch_weights`, no `zero_debias_moving_mean` and no tensor as `is_training`"
    )
    with pytest.raises(NotImplementedError, match=message):
        contrib.layers.batch_norm(tf.ones([2, 3]), **given)


def test_flatten_takes_sizes_that_are_unknown(random):
    x = random.normal(size=[2, 3, 4]).astype("float32")
    unknown = V1.placeholder_with_default(x, [2, None, 4])
    flat = contrib.layers.flatten(unknown)
    assert flat.shape.as_list() == [2, None]
    np.testing.assert_array_equal(run(flat)[0], x.reshape(2, 12))


@pytest.mark.parametrize(
    ("size", "fused", "correction"),
    [
        ([50, 4], None, 50 / 49),
        ([50, 4], False, 1),
        ([5, 2, 5, 4], True, 50 / 49),
        ([5, 10, 4], 1, 1),
    ],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_batch_norm_normalizes_and_moves_its_statistics(size, fused, correction, in_place, random):
    x = random.normal(2, 3, size=size)
    given = {"fused": fused} | ({"updates_collections": None} if in_place else {})
    trained = contrib.layers.batch_norm(x, decay=0.75, scale=True, scope="bn", **given)
    tested = contrib.layers.batch_norm(x, is_training=False, scale=True, scope="bn", reuse=True)
    updates = V1.get_collection(V1.GraphKeys.UPDATE_OPS)
    assert len(updates) == (0 if in_place else 2)
    assert names() == ["bn/beta", "bn/gamma", "bn/moving_mean", "bn/moving_variance"]
    assert [v.op.name for v in V1.trainable_variables()] == ["bn/beta", "bn/gamma"]
    with V1.Session() as session:
        session.run(V1.global_variables_initializer())
        found = session.run(trained)
        session.run(updates)
        mean, variance = session.run(V1.global_variables()[2:])
        served = session.run(tested)
    flat = x.reshape(50, 4)
    normal = (x - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-3)
    np.testing.assert_allclose(found, normal, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mean, flat.mean(0) / 4, rtol=1e-12)
    np.testing.assert_allclose(variance, 0.75 + flat.var(0) * correction / 4, rtol=1e-12)
    served_normal = (x - mean) / np.sqrt(variance + 1e-3)
    np.testing.assert_allclose(served, served_normal, rtol=1e-12, atol=1e-12)


def test_regularizers_initializers_and_small_layers():
    layers = contrib.layers
    weights = [tf.constant([1.0, -2.0]), tf.constant([[3.0]])]
    total = layers.apply_regularization(layers.l1_l2_regularizer(0.5, 0.25), weights)
    assert len(V1.get_collection(V1.GraphKeys.REGULARIZATION_LOSSES)) == 2
    embedded = layers.embed_sequence([[1, 2]], vocab_size=5, embed_dim=3)
    uniform = layers.xavier_initializer()([100, 200])
    normal = layers.variance_scaling_initializer()([50, 400])
    stacked = layers.stack(tf.ones([2, 3]), layers.fully_connected, [4, 5], scope="s")
    one_hot = layers.one_hot_encoding([2, 0], 3)
    pooled = layers.max_pool2d(tf.reshape(tf.range(16.0), [1, 4, 4, 1]), 2)
    found = run(total, embedded, uniform, normal, stacked, one_hot, pooled)
    assert found[0] == 0.5 * (3 + 3) + 0.125 * (5 + 9)
    assert found[1].shape == (1, 2, 3)
    assert np.abs(found[2]).max() == pytest.approx(np.sqrt(6 / 300), rel=0.01)
    assert found[3].std() == pytest.approx(np.sqrt(2 / 50), rel=0.03)
    assert found[4].shape == (2, 5)
    assert found[5].tolist() == [[0, 0, 1], [1, 0, 0]]
    assert found[6].flat[:].tolist() == [5, 7, 13, 15]
    assert "s/s_2/weights" in names()
    with pytest.raises(ValueError, match=r"`scale` \(1\) must be a float"):
        layers.l2_regularizer(1)
    with pytest.raises(ValueError, match=r"`scale_l2` \(-0.5\) must be a float"):
        layers.l1_l2_regularizer(0.5, -0.5)


def test_a_regularizers_scale_may_be_a_tensor_or_0():
    half = V1.placeholder_with_default(0.5, [])
    scaled = contrib.layers.l1_regularizer(half)(tf.constant([1.0, -3.0]))
    assert run(scaled) == [2]
    assert contrib.layers.l1_l2_regularizer(0.0, 0.0)(tf.constant([1.0])) is None


def test_dropout_pooling_and_linear_layers():
    layers, ones = contrib.layers, tf.ones([100, 100])
    dropped = layers.dropout(ones, keep_prob=0.25)
    kept = layers.dropout(ones, keep_prob=0.25, is_training=False)
    by_tensor = [
        layers.dropout(ones, tf.constant(0.25), is_training=tf.constant(is_training))
        for is_training in (True, False)
    ]
    pooled = layers.avg_pool2d(tf.reshape(tf.range(16.0), [1, 4, 4, 1]), [2, 2], padding="SAME")
    line = layers.linear(-ones, 2, weights_initializer=V1.ones_initializer())
    found = run(dropped, kept, pooled, line, *by_tensor)
    assert set(found[0].flat) == {0, 4}
    assert found[0].mean() == pytest.approx(1, abs=0.1)  # 6 standard deviations.
    assert set(found[1].flat) == {1}
    assert found[2].flat[:].tolist() == [2.5, 4.5, 10.5, 12.5]
    assert set(found[3].flat) == {-100}
    assert [set(values.flat) for values in found[4:]] == [{0, 4}, {1}]


def test_optimize_loss_clips_multiplies_and_counts():
    w = V1.get_variable("w", [2], initializer=V1.zeros_initializer())
    step = V1.train.create_global_step()
    loss = contrib.layers.optimize_loss(
        tf.reduce_sum(w * [30.0, 40.0]),
        None,
        learning_rate=1.0,
        optimizer="SGD",
        clip_gradients=75.0,
        gradient_multipliers={"w": 2.0},
        learning_rate_decay_fn=lambda rate, step: rate / 2,
    )
    with V1.Session() as session:
        session.run(V1.global_variables_initializer())
        session.run(loss)
        np.testing.assert_allclose(session.run(w), [-22.5, -30.0], rtol=1e-6)
        assert session.run(step) == 1
    with pytest.raises(ValueError, match=r"`optimizer` \('Sgd'\) is unknown. Use one of .Adagrad"):
        contrib.layers.optimize_loss(loss, None, 0.1, "Sgd")


@pytest.mark.parametrize(
    ("learning_rate", "optimizer"),
    [
        (0.5, "SGD"),
        (0.5, V1.train.GradientDescentOptimizer),
        (0.25, lambda rate: V1.train.GradientDescentOptimizer(2 * rate)),
        (None, lambda: V1.train.GradientDescentOptimizer(0.5)),
        (None, V1.train.GradientDescentOptimizer(0.5)),
        (9.0, V1.train.GradientDescentOptimizer(0.5)),
    ],
    ids=["name", "class", "function of the rate", "function", "optimizer", "optimizer and a rate"],
)
def test_an_optimizer_of_any_form_takes_the_same_step(learning_rate, optimizer):
    w = V1.get_variable("w", [2], initializer=V1.zeros_initializer())
    unused = V1.get_variable("unused", [], initializer=V1.ones_initializer())
    step = contrib.layers.optimize_loss(
        tf.reduce_sum(w * [3.0, -4.0]),
        None,
        learning_rate,
        optimizer,
        gradient_multipliers={"unused": 3.0},
        clip_gradients=lambda pairs: [
            (g if g is None else tf.clip_by_value(g, -1.0, 1.0), v) for g, v in pairs
        ],
        summaries=["gradient_norm", "global_gradient_norm"],
        increment_global_step=False,
    )
    with V1.Session() as session:
        session.run(V1.global_variables_initializer())
        session.run(step)
        assert session.run([w, unused, V1.train.get_global_step()])[1:] == [1, 0]
        assert session.run(w).tolist() == [-0.5, 0.5]
        texts = session.run(V1.get_collection(V1.GraphKeys.SUMMARIES))
    values = [value for text in texts for value in V1.Summary.FromString(text).value]
    # Those of a variable are of what is applied.
    assert {value.tag.rpartition("/")[2]: value.simple_value for value in values} == {
        "w_0": pytest.approx(2**0.5),
        "gradient_norm": 5,
        "clipped_gradient_norm": pytest.approx(2**0.5),
    }


def test_variables_of_layers_are_in_the_collections_that_are_given():
    layers = contrib.layers
    lists = {"weights": ["w"], "biases": "b"}
    outputs = layers.fully_connected(tf.ones([2, 3]), 4, variables_collections=lists)
    layers.batch_norm(outputs, variables_collections="all")
    V1.get_variable("other", [])
    named = contrib.framework.get_variables
    assert [v.op.name for v in named("fully", "s:0")] == names()[:2]
    kernel, bias, beta, mean, variance, _ = V1.global_variables()
    assert V1.get_collection("w") == [kernel]
    assert V1.get_collection("b") == [bias]
    assert V1.get_collection("all") == [beta, mean, variance]
    assert contrib.framework.get_model_variables() == [kernel, bias, beta, mean, variance]
    assert contrib.framework.get_model_variables("BatchNorm", "variance") == [variance]
    assert contrib.framework.get_trainable_variables("fully_connected") == [kernel, bias]


def test_a_stack_names_its_scopes_and_is_used_again():
    layers = contrib.layers
    images = tf.ones([1, 4, 4, 1])
    layers.stack(images, layers.conv2d, [(2, 3), (3, 3)], biases_initializer=None)
    layers.stack(tf.ones([2, 3]), layers.fully_connected, [4], scope="s")
    layers.stack(tf.ones([2, 3]), layers.fully_connected, [4], scope="s", reuse=True)
    thin = functools.partial(layers.fully_connected, biases_initializer=None)
    layers.stack(tf.ones([2, 3]), thin, [4])
    layers.stack(tf.ones([2, 3]), layers.linear, [4], biases_initializer=None)
    assert names() == [
        *("Stack/convolution2d_1/weights", "Stack/convolution2d_2/weights"),
        *("s/s_1/weights", "s/s_1/biases"),
        "Stack_1/fully_connected_1/weights",
        "Stack_2/fully_connected_1/weights",
    ]


def test_optimize_loss_writes_the_summaries_that_are_asked_for():
    w = V1.get_variable("w", [2], initializer=V1.zeros_initializer())
    other = V1.get_variable("other", [], initializer=V1.zeros_initializer())
    loss = tf.reduce_sum(w) + other
    contrib.layers.optimize_loss(loss, None, 0.1, "SGD", summaries=[])
    assert V1.get_collection(V1.GraphKeys.SUMMARIES) == []
    with pytest.raises(ValueError, match="No variables"):
        contrib.layers.optimize_loss(loss, None, 0.1, "SGD", summaries=[], variables=[])
    given = {"variables": [w], "clip_gradients": 1.0}
    contrib.layers.optimize_loss(loss, None, 0.1, "SGD", name="o", **given)
    everything = ["gradients", "gradient_norm", "global_gradient_norm"]
    contrib.layers.optimize_loss(loss, None, 0.1, "SGD", name="p", summaries=everything)
    values = {}
    for text in run(*V1.get_collection(V1.GraphKeys.SUMMARIES)):
        for value in V1.Summary.FromString(text).value:
            values[value.tag] = value.simple_value
    assert values == {
        "o/learning_rate": pytest.approx(0.1),
        "o/loss": 0,
        "o/global_norm/gradient_norm": pytest.approx(2**0.5),
        "o/global_norm/clipped_gradient_norm": pytest.approx(1),
        **dict.fromkeys(["p/gradients/w_0", "p/gradients/other_0"], 0),
        "p/gradient_norm/w_0": pytest.approx(2**0.5),
        "p/gradient_norm/other_0": 1,
        "p/global_norm/gradient_norm": pytest.approx(3**0.5),
    }
    with pytest.raises(NotImplementedError, match=r"`gradient_noise_scale` \(0.5\) must be None"):
        contrib.layers.optimize_loss(loss, None, 0.1, "SGD", gradient_noise_scale=0.5)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((None, "SGD"), ValueError, "`learning_rate` must be given if `optimizer` .'SGD'. is a n"),
        ((None, V1.train.AdamOptimizer), ValueError, "`learning_rate` must be given if `optimiz"),
        ((0.1, 7), TypeError, "`optimizer` .7. must be an optimizer of tf.train, its class, a "),
        ((0.1, lambda rate: None), TypeError, "`optimizer` .None. must be an optimizer of tf.t"),
        ((0.1, tf.keras.optimizers.SGD), TypeError, "`optimizer` .<keras.* must be an optimizer"),
        ((0.1, "SGD", None, None, None, None, None, None, None, ["los"]), ValueError, "`summar"),
    ],
)
def test_optimize_loss_names_what_it_cannot_use(given, error, message):
    w = V1.get_variable("w", [])
    with pytest.raises(error, match=message):
        contrib.layers.optimize_loss(w, None, *given)


def test_optimize_loss_multiplies_a_sparse_gradient():
    w = V1.get_variable("w", [3], initializer=V1.zeros_initializer())
    loss = tf.reduce_sum(tf.gather(w, [0, 2]))
    step = contrib.layers.optimize_loss(loss, None, 1.0, "SGD", gradient_multipliers={w: 2})
    with V1.Session() as session:
        session.run(V1.global_variables_initializer())
        session.run(step)
        assert session.run(w).tolist() == [-2, 0, -2]


def test_feature_columns_are_those_that_became_core():
    layers = contrib.layers
    keys = layers.sparse_column_with_keys("k", ["a", "b"])
    bucket = layers.sparse_column_with_hash_bucket("h", 10)
    number = layers.real_valued_column("n", dimension=2)
    columns = [layers.one_hot_column(keys), number, layers.embedding_column(bucket, 3)]
    inputs = layers.input_from_feature_columns(
        {"k": [["b"], ["c"]], "n": [[1.0, 2.0], [3.0, 4.0]], "h": [["x"], ["y"]]}, columns
    )
    (found,) = run(inputs)
    assert found.shape == (2, 3 + 2 + 2)
    assert set(layers.create_feature_spec_for_parsing(columns)) == {"k", "h", "n"}
    crossed = layers.crossed_column([keys, bucket], 20)
    buckets = layers.bucketized_column(layers.real_valued_column("m"), [0.0])
    assert crossed.hash_bucket_size == 20
    assert crossed.keys == (keys, "h")
    assert buckets.boundaries == (0.0,)


def test_sparse_columns_become_categorical_ones(tmp_path):
    layers, columns = contrib.layers, V1.feature_column
    path = str(tmp_path / "words")
    (tmp_path / "words").write_text("a\nb\nc\n")
    by_file = columns.categorical_column_with_vocabulary_file
    ids = layers.sparse_column_with_integerized_feature("i", 5)
    assert ids == columns.categorical_column_with_identity("i", 5)
    with_default = layers.sparse_column_with_vocabulary_file("f", path, 0, 2, 1)
    assert with_default == by_file("f", path, 2, default_value=1)
    with_buckets = layers.sparse_column_with_vocabulary_file("f", path, num_oov_buckets=2)
    assert with_buckets == by_file("f", path, None, num_oov_buckets=2)
    weighted = layers.weighted_sparse_column(sparse_id_column=ids, weight_column_name="w")
    assert weighted == columns.weighted_categorical_column(ids, "w")
