"""Ready-made models and heads: names in checkpoints, columns, and what differs on purpose.

tests/canned/ and tests/heads/ compare losses, weights, metrics and predictions with recorded ones.
"""

import collections

import numpy as np
import pytest
from tensorflow.python.feature_column import feature_column_v2 as columns_lib

from tests.contract.names import est, tf, tf_keras, v1, v1est

FC = tf.feature_column
LABELS = [[0], [1], [1], [0]]
IDS = np.int64([[1], [4], [1], [2]])


def ids(key="id", **kwargs):
    return FC.categorical_column_with_identity(key, 6, **kwargs)


def batch(labels=LABELS, **features):
    return lambda: tf.data.Dataset.from_tensors((features, labels)).repeat(4)


def trained(model, **features):
    """The values of a model's variables after two steps."""
    model.train(batch(**features), steps=2)
    return {name: model.get_variable_value(name) for name in model.get_variable_names()}


# --- The same on both sides ----------------------------------------------------------------------

INPUT = "dnn/input_from_feature_columns/input_layer"
MIRRORED = "under a strategy"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("", {"dnn/hiddenlayer_0/bias/t_0/Adam", "dnn/head/beta1_power"}),
        (MIRRORED, {"dnn/dnn/hiddenlayer_0/bias/Adam", "dnn/head/dnn/beta1_power"}),
    ],
)
def test_an_optimizer_of_a_deep_model_of_v1_has_these_names(kind, names, tmp_path):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"]) if kind else None
    model = v1est.DNNClassifier(
        [2],
        [FC.embedding_column(ids("a/b"), 2)],
        str(tmp_path),
        optimizer=v1.train.AdamOptimizer,
        config=est.RunConfig(train_distribute=strategy),
    )
    found = trained(model, **{"a/b": IDS})
    assert names | {f"{INPUT}/a_b_embedding/embedding_weights"} <= set(found)


COMBINED = {
    "linear_feature_columns": [FC.numeric_column("x")],
    "dnn_feature_columns": [FC.numeric_column("x")],
    "dnn_hidden_units": [2],
}
DEEP = {"feature_columns": [FC.numeric_column("x")], "hidden_units": [2]}
LINEAR = {"feature_columns": [FC.numeric_column("x")]}
# What programs give a LoggingTensorHook, such as census_main.py of TensorFlow's official models.
LOSS, AVERAGE, MEAN = "head/weighted_loss/Sum", "head/truediv", "head/weighted_loss/value"


@pytest.mark.parametrize(
    ("name", "given", "tensors"),
    [
        ("LinearClassifier", LINEAR, [f"linear/{LOSS}", f"linear/{AVERAGE}"]),
        ("LinearRegressor", LINEAR, [f"linear/{LOSS}", f"linear/{AVERAGE}"]),
        ("DNNClassifier", DEEP, [f"dnn/{LOSS}", f"dnn/{AVERAGE}"]),
        ("DNNRegressor", {**DEEP, "loss_reduction": "weighted_mean"}, [f"dnn/{MEAN}"]),
        ("DNNLinearCombinedClassifier", COMBINED, [LOSS, AVERAGE]),
        ("BaselineClassifier", {}, [LOSS, AVERAGE, "head/predictions/probabilities"]),
    ],
)
def test_tensors_of_a_model_of_v1_have_these_names(name, given, tensors, tmp_path):
    model = getattr(v1est, name)(model_dir=str(tmp_path), **given)

    class Fetches(est.SessionRunHook):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs([f"{tensor}:0" for tensor in tensors])

        def after_run(self, run_context, run_values):
            self.found = [float(np.sum(value)) for value in run_values.results]

    hook = Fetches()
    model.train(batch(x=np.float32([[1], [2], [3], [4]])), hooks=[hook], steps=1)
    if AVERAGE in tensors[-1]:
        assert hook.found[0] == pytest.approx(4 * hook.found[1])


@pytest.mark.parametrize("units", [np.array([3, 2]), range(3, 1, -1), (6 / 2, np.float64(2))])
def test_layers_have_whole_numbers_of_units_of_any_type(units, tmp_path):
    model = est.DNNClassifier(units, [FC.numeric_column("x")], str(tmp_path))
    found = trained(model, x=np.float32([[1], [2], [3], [4]]))
    assert found["dnn/logits/kernel"].shape == (2, 1)


class Scaled(tf_keras.optimizers.legacy.SGD):
    """An optimizer whose config lacks an argument."""

    def __init__(self, factor=1.0):
        super().__init__(0.1, name="Scaled")
        self.factor = factor

    def _resource_apply_dense(self, grad, var, apply_state=None):
        return super()._resource_apply_dense(grad * self.factor, var, apply_state)


class Rate(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate of 0.05 by a class of the program's own."""

    def __call__(self, step):
        return 0.05 + 0 * tf.cast(step, tf.float32)


def halved(grads_and_vars):
    return [(grad / 2, var) for grad, var in grads_and_vars]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scaled(factor=0.5),
        lambda: tf_keras.optimizers.legacy.SGD(Rate()),
        lambda: tf_keras.optimizers.legacy.SGD(lambda: tf.constant(0.05)),
        lambda: tf_keras.optimizers.legacy.SGD(0.1, gradient_transformers=[halved]),
    ],
)
def test_a_legacy_optimizer_is_used_with_all_that_it_has(make, tmp_path):
    model = est.LinearRegressor([FC.numeric_column("x")], str(tmp_path), optimizer=make())
    model.train(lambda: tf.data.Dataset.from_tensors(({"x": [[2.0]]}, [[3.0]])).repeat(), steps=1)
    bias = model.get_variable_value("linear/linear_model/bias_weights")
    assert bias == pytest.approx(0.05 * 2 * 3.0)


@pytest.mark.parametrize(
    ("clip", "word_weight", "bias"),
    [
        ({"clipvalue": 3.0}, 3.0, 3.0),
        ({"clipnorm": 0.5}, 0.5, 0.5),
        ({"global_clipnorm": 0.5}, 0.5 * 12 / 340**0.5, 0.5 * 14 / 340**0.5),
    ],
)
def test_a_gradient_is_clipped_with_all_examples_of_a_category(clip, word_weight, bias, tmp_path):
    column = FC.categorical_column_with_hash_bucket("word", 1)
    optimizer = tf_keras.optimizers.legacy.SGD(1.0, **clip)
    model = est.LinearRegressor([column], str(tmp_path), optimizer=optimizer, loss_reduction="sum")
    batch = {"word": [[""], ["a"], ["a"]]}, [[1.0], [2.0], [4.0]]
    model.train(lambda: tf.data.Dataset.from_tensors(batch), steps=1)
    names = ("linear/linear_model/word/weights", "linear/linear_model/bias_weights")
    found = [model.get_variable_value(name).item() for name in names]
    assert found == pytest.approx([word_weight, bias])


def step_with_one_optimizer_for_both_parts(tmp_path):
    optimizer = tf_keras.optimizers.legacy.SGD(0.1)
    model = est.DNNLinearCombinedClassifier(
        str(tmp_path), **COMBINED, linear_optimizer=optimizer, dnn_optimizer=optimizer
    )
    model.train(batch(x=np.float32([[1], [2], [3], [4]])), steps=1)
    return model.get_variable_value("global_step")


@pytest.mark.only_2_15("one Keras optimizer for both parts of a model")
def test_a_step_of_an_optimizer_for_both_parts_counts_twice(tmp_path):
    assert step_with_one_optimizer_for_both_parts(tmp_path) == 2


@pytest.mark.only_here("one Keras optimizer for both parts of a model")
def test_a_step_of_an_optimizer_for_both_parts_counts_once(tmp_path):
    assert step_with_one_optimizer_for_both_parts(tmp_path) == 1


def test_a_slash_in_a_key_is_kept_in_deep_models_of_v2_alone(tmp_path):
    model = est.DNNLinearCombinedClassifier(
        str(tmp_path),
        linear_feature_columns=[ids("a/b")],
        dnn_feature_columns=[FC.embedding_column(ids("a/b"), 2)],
        dnn_hidden_units=[2],
    )
    found = trained(model, **{"a/b": IDS})
    names = {f"{INPUT}/a/b_embedding/embedding_weights", "linear/linear_model/a_b/weights"}
    assert names <= set(found)


class OwnVariable(columns_lib.DenseColumn, collections.namedtuple("OwnVariable", "key")):
    """A column of a library, which makes its variable without TensorFlow's state manager."""

    _is_v2_column = True
    name = "own_column"
    parents = property(lambda self: [self.key])
    parse_example_spec = property(lambda self: {self.key: tf.io.FixedLenFeature([1], tf.float32)})
    variable_shape = property(lambda self: tf.TensorShape([1]))

    def create_state(self, state_manager):
        with v1.variable_scope("module"):
            state_manager.add_resource(self, "own", v1.get_variable("own", [1, 1]))

    def transform_feature(self, transformation_cache, state_manager):
        return tf.cast(transformation_cache.get(self.key, state_manager), tf.float32)

    def get_dense_tensor(self, transformation_cache, state_manager):
        values = transformation_cache.get(self, state_manager)
        return values * state_manager.get_resource(self, "own")

    def get_config(self):
        return self._asdict()

    @classmethod
    def from_config(cls, config, custom_objects=None, columns_by_name=None):
        return cls(**config)


def test_the_variable_of_a_librarys_column_has_the_columns_scope(tmp_path):
    model = v1est.DNNClassifier(
        [2],
        [OwnVariable("id"), FC.embedding_column(ids("id"), 2)],
        str(tmp_path),
        optimizer=v1.train.GradientDescentOptimizer(0.1),
    )
    found = trained(model, id=IDS)
    assert {f"{INPUT}/own_column/module/own", f"{INPUT}/id_embedding/embedding_weights"} <= set(
        found
    )


def test_columns_of_tensorflow_1_share_an_embedding(tmp_path):
    with tf.Graph().as_default():  # TensorFlow makes shared embeddings in graphs alone.
        columns = v1.feature_column.shared_embedding_columns([ids("other"), ids("id")], 2)
    model = v1est.DNNClassifier(
        [2],
        [*columns, FC.embedding_column(ids("id"), 2)],
        str(tmp_path),
        optimizer=v1.train.GradientDescentOptimizer(1.0),
        activation_fn=tf.identity,
    )
    found = trained(model, id=IDS, other=np.int64([[3], [3], [1], [1]]))
    assert f"{INPUT}/id_embedding/embedding_weights" in found
    name = f"{INPUT}/id_other_shared_embedding/embedding_weights"
    before = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-0")).get_tensor(name)
    is_trained = np.any(found[name] != before, axis=1)
    assert list(is_trained) == [False, True, True, True, True, False]


def test_a_linear_model_takes_a_sequence_of_categories_as_a_set(tmp_path):
    sequence = FC.sequence_categorical_column_with_identity("id", 6)
    several = np.int64([[1, 2], [4, -1], [1, 5], [2, -1]])  # -1 is none.
    name = "linear/linear_model/id/weights"
    of_sequence, of_set = (
        trained(est.LinearClassifier([column], str(tmp_path / kind)), id=several)[name]
        for kind, column in (("sequence", sequence), ("set", ids()))
    )
    np.testing.assert_allclose(of_sequence, of_set)
    assert np.all(of_set[[1, 2, 4, 5]] != 0)


def test_a_negative_id_is_none(tmp_path):
    model = est.LinearClassifier([ids()], str(tmp_path), optimizer="SGD")
    weights = trained(model, id=np.int64([[1], [-1], [-3], [2]]))["linear/linear_model/id/weights"]
    np.testing.assert_array_equal(weights[:, 0] != 0, [0, 1, 1, 0, 0, 0])


def test_an_indicator_gives_zeros_for_an_id_beyond_its_buckets(tmp_path):
    model = est.DNNClassifier([2], [FC.indicator_column(ids())], str(tmp_path))
    trained(model, id=np.int64([[1], [9], [7], [2]]))
    rows = [row["logits"] for row in model.predict(batch(id=np.int64([[9], [8]]), labels=[0, 0]))]
    np.testing.assert_array_equal(rows[0], rows[1])


@pytest.mark.parametrize("shape", [[3], [3, 1]], ids=str)
def test_a_weight_that_is_true_is_one(shape):
    def loss(weights):
        features = {"w": tf.reshape(tf.constant(weights), shape)}
        head = est.BinaryClassHead(weight_column="w")
        logits, labels = tf.constant([[0.5], [2.0], [-1.0]]), tf.constant([[1], [0], [1]])
        return float(head.loss(labels, logits, features=features))

    assert loss([True, False, True]) == pytest.approx(loss([1.0, 0.0, 1.0]))
    assert loss([True, False, True]) != pytest.approx(loss([1.0, 1.0, 1.0]))


# --- What differs ---------------------------------------------------------------------------------

BAD_NUMBERS = {
    "weights": lambda: est.RegressionHead(weight_column="w").loss(
        tf.constant([[1.0], [2.0]]),
        tf.constant([[1.0], [2.5]]),
        features={"w": tf.constant([[1.0], [-1.0]])},
    ),
    "labels": lambda: est.RegressionHead().loss(
        tf.constant([[np.inf]]), tf.constant([[1.0]]), features={}
    ),
}


@pytest.mark.only_2_15("labels and weights that no loss can use")
@pytest.mark.parametrize("name", BAD_NUMBERS)
def test_negative_weights_and_infinite_labels_are_computed_with(name):
    assert not 0 <= float(BAD_NUMBERS[name]()) < np.inf


@pytest.mark.only_here("labels and weights that no loss can use")
@pytest.mark.parametrize("name", BAD_NUMBERS)
def test_negative_weights_and_infinite_labels_are_errors(name):
    with pytest.raises(ValueError, match="RegressionHead: .*the first that is"):
        BAD_NUMBERS[name]()


def loss_of_bytes():
    return est.MultiClassHead(3).loss(tf.constant([[2]], tf.uint8), tf.zeros([1, 3]), features={})


@pytest.mark.only_2_15("types of class ids")
def test_a_byte_is_no_class_id():
    with pytest.raises(tf.errors.InvalidArgumentError, match="uint8"):
        loss_of_bytes()


@pytest.mark.only_here("types of class ids")
def test_a_byte_is_a_class_id():
    assert float(loss_of_bytes()) == pytest.approx(np.log(3))


def regularized_with_nothing():
    return est.RegressionHead().loss(
        tf.constant([[1.0]]), tf.constant([[3.0]]), features={}, regularization_losses=[]
    )


@pytest.mark.only_2_15("an empty list of regularization losses")
def test_no_regularization_losses_are_an_error():
    with pytest.raises(ValueError, match="at least one"):
        regularized_with_nothing()


@pytest.mark.only_here("an empty list of regularization losses")
def test_no_regularization_losses_add_nothing():
    assert float(regularized_with_nothing()) == 4


def shared_embedding(tmp_path):
    """A shared embedding before and after two steps."""
    with tf.Graph().as_default():
        columns = FC.shared_embeddings([ids("id"), ids("other")], 2)
    config = est.RunConfig(str(tmp_path), save_checkpoints_steps=2)
    model = est.DNNClassifier(
        [4], columns, optimizer="SGD", activation_fn=tf.identity, config=config
    )
    after = trained(model, id=IDS, other=IDS[::-1])
    name = "id_other_shared_embedding"
    before = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-0")).get_tensor(name)
    return before, after[name]


@pytest.mark.only_2_15("shared embeddings of deep models")
def test_a_shared_embedding_stays_as_it_is(tmp_path):
    np.testing.assert_array_equal(*shared_embedding(tmp_path))


@pytest.mark.only_here("shared embeddings of deep models")
def test_a_shared_embedding_is_trained(tmp_path):
    before, after = shared_embedding(tmp_path)
    assert np.all(before[[1, 2, 4]] != after[[1, 2, 4]])


def error_of_a_large_id(tmp_path):
    model = est.DNNClassifier([2], [FC.embedding_column(ids(), 2)], str(tmp_path))
    with pytest.raises(tf.errors.InvalidArgumentError) as info:
        trained(model, id=np.int64([[1], [9], [1], [2]]))
    return str(info.value)


@pytest.mark.only_2_15("an id beyond the buckets of an embedding")
def test_a_large_id_is_told_by_the_node_of_the_graph(tmp_path):
    message = error_of_a_large_id(tmp_path)
    assert "= 9 is not in [0, 6)" in message
    assert "num_buckets" not in message


@pytest.mark.only_here("an id beyond the buckets of an embedding")
def test_a_large_id_is_told_by_the_column(tmp_path):
    assert "the column `id_embedding` needs, must be below its `num_buckets` (6)" in (
        error_of_a_large_id(tmp_path)
    )


@pytest.mark.parametrize("num_heads", [1, 2])
def test_slots_of_several_heads_have_a_scope_of_their_own(num_heads, tmp_path):
    heads = [est.RegressionHead(name=f"h{i}") for i in range(num_heads)]
    model = est.DNNEstimator(est.MultiHead(heads), [2], [FC.numeric_column("x")], str(tmp_path))
    labels = {head.name: np.float32([[1.0]]) for head in heads}
    model.train(lambda: tf.data.Dataset.from_tensors(({"x": np.float32([[1.0]])}, labels)), steps=1)
    name = f"training_{num_heads}/Adagrad/dnn/logits/kernel/accumulator"
    assert name in model.get_variable_names()


def binary_heads(num_heads):
    """A head, or several of them, and their labels."""
    labels = np.int64([[0], [1]])
    if num_heads == 1:
        return est.BinaryClassHead(), labels
    names = [f"h{index}" for index in range(num_heads)]
    return est.MultiHead([est.BinaryClassHead(name=n) for n in names]), dict.fromkeys(names, labels)


X = np.float32([[1.0], [3.0]])
ADAM = v1.train.AdamOptimizer


@pytest.mark.parametrize("num_heads", [1, 3])
@pytest.mark.parametrize("is_in_scope", [False, True])
def test_variables_of_an_optimizer_in_train_op_fn_are_in_the_scope_of_training(
    is_in_scope, num_heads, tmp_path
):
    def model_fn(features, labels, mode):
        head, _ = binary_heads(num_heads)
        logits = features["x"] @ v1.get_variable("w", [1, head.logits_dimension])
        with tf.name_scope("outer" if is_in_scope else ""):
            return head.create_estimator_spec(
                features,
                mode,
                logits,
                labels,
                train_op_fn=lambda loss: v1.train.AdamOptimizer().minimize(
                    loss, v1.train.get_global_step()
                ),
            )

    model = est.Estimator(model_fn, str(tmp_path))
    model.train(batch(binary_heads(num_heads)[1], x=X), steps=1)
    found = {name for name in model.get_variable_names() if "power" in name}
    scope = "training" if num_heads == 1 else f"training_{num_heads}"
    assert found == {f"{scope}/beta1_power", f"{scope}/beta2_power"}


@pytest.mark.parametrize("num_heads", [1, 2])
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("BaselineEstimator", {"optimizer": ADAM}),
        (
            "DNNLinearCombinedEstimator",
            {
                "dnn_feature_columns": [FC.numeric_column("x")],
                "dnn_hidden_units": [2],
                "dnn_optimizer": ADAM,
            },
        ),
    ],
)
def test_models_of_v1_with_a_head_train_in_the_scope_of_training(
    kind, arguments, num_heads, tmp_path
):
    head, labels = binary_heads(num_heads)
    model = getattr(v1est, kind)(head, str(tmp_path), **arguments)
    model.train(batch(labels, x=X), steps=1)
    scope = "training" if num_heads == 1 else f"training_{num_heads}"
    assert f"{scope}/beta1_power" in model.get_variable_names()


@pytest.mark.parametrize("name", ["Adagrad", "Adam", "Ftrl", "RMSProp", "SGD"])
def test_two_optimizers_of_one_name_have_their_own_variables_and_rates(name, tmp_path):
    columns = [FC.numeric_column("x")]
    model = est.DNNLinearCombinedClassifier(
        str(tmp_path),
        linear_feature_columns=columns,
        linear_optimizer=name,
        dnn_feature_columns=columns,
        dnn_optimizer=name,
        dnn_hidden_units=[2],
    )
    model.train(batch(np.int64([[0], [1]]), x=X), steps=2)
    scope = f"training/{name.replace('P', 'p')}"
    rates = [model.get_variable_value(f"{scope}{end}/learning_rate") for end in ("", "_1")]
    np.testing.assert_allclose(rates, [0.001, 0.005])
    names = set(model.get_variable_names())
    assert f"{scope}_1/iter" in names
    assert f"{scope}/iter" not in names
    slots = {n for n in names if n.startswith(scope) and "/linear_model/" in n}
    assert all(n.startswith(f"{scope}_1/") for n in slots)
    assert bool(slots) == (name != "SGD")


def test_an_optimizer_by_name_has_a_scope_beside_one_of_its_kind_that_a_function_makes(tmp_path):
    model = est.DNNLinearCombinedRegressor(
        str(tmp_path),
        **COMBINED,
        linear_optimizer="Adam",
        dnn_optimizer=lambda: tf_keras.optimizers.legacy.Adam(0.001),
    )
    found = trained(model, x=np.float32([[1], [2], [3], [4]]))
    names = {"training/Adam/beta_1", "training/Adam_1/beta_1", "training/Adam_1/iter"}
    names |= {"training/Adam/dnn/hiddenlayer_0/kernel/m"}
    assert names | {"training/Adam_1/linear/linear_model/x/weights/m"} <= set(found)


def moving_variance(tmp_path):
    head, labels = binary_heads(1)
    model = v1est.DNNLinearCombinedEstimator(
        head,
        str(tmp_path),
        dnn_feature_columns=[FC.numeric_column("x")],
        dnn_hidden_units=[2],
        batch_norm=True,
    )
    model.train(batch(labels, x=X), steps=2)
    return model.get_variable_value("dnn/hiddenlayer_0/batchnorm_0/moving_variance")


@pytest.mark.only_2_15("batch normalization of a wide-and-deep model of v1")
def test_moving_statistics_beside_a_head_are_never_updated(tmp_path):
    np.testing.assert_array_equal(moving_variance(tmp_path), [1, 1])


@pytest.mark.only_here("batch normalization of a wide-and-deep model of v1")
def test_moving_statistics_beside_a_head_are_updated(tmp_path):
    assert np.all(moving_variance(tmp_path) != 1)
