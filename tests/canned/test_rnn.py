"""Recurrent models beside the reference: user-defined cells, steps, masks, empty sequences."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.canned import experimental_cases as cases
from tests.canned import model_cases

LABELS = cases.SEQUENCE_LABELS
Classifier = est.experimental.RNNClassifier


def changed(label, change, *, repeats=True):
    """Batches whose features and labels `change` has made others of."""
    return lambda: cases.sequence_input_fn(label, repeats=repeats)().map(change)


def trained(model_dir, input_fn, make=Classifier, loop=5, num_steps=6, **settings):
    """A model after some steps."""
    config = est.RunConfig(iterations_per_loop=loop, tf_random_seed=1, save_summary_steps=None)
    settings = {"config": config, "units": [4], **settings}
    model = make(
        sequence_feature_columns=cases.sequence_columns(), model_dir=str(model_dir), **settings
    )
    model.train(input_fn, steps=num_steps)
    return model


def cells():
    return [tf.keras.layers.GRUCell(4), tf.keras.layers.LSTMCell(3)]


@pytest.mark.parametrize(
    ("settings", "replicas", "name"),
    [
        (
            {"rnn_cell_fn": cells, "units": None},
            {"strategy": "mirrored", "num_replicas": 2},
            "gru_cell",
        ),
        (
            {
                "cell_type": tf.keras.layers.LSTMCell,
                "context_feature_columns": cases.context_columns(),
            },
            {},
            "lstm_cell",
        ),
    ],
    ids=["function on two replicas", "class"],
)
def test_user_defined_cells_are_trained(settings, replicas, name, tmp_path):
    config = est.RunConfig(iterations_per_loop=10, tf_random_seed=1, **replicas)
    train, evaluate = (cases.sequence_input_fn("two", repeats=r) for r in (True, False))
    settings = {"config": config, "optimizer": "Adam", **settings}
    with trained(tmp_path, train, num_steps=30, **settings) as model:
        start = str(tmp_path / "model.ckpt-0")
        before = model.evaluate(evaluate, checkpoint_path=start)["average_loss"]
        assert model.evaluate(evaluate)["average_loss"] < before
        assert any(f"/{name}/recurrent_kernel" in v for v in model.get_variable_names())


@pytest.mark.parametrize(
    ("optimizer", "largest"),
    [("SGD", 5), (tf.compat.v1.train.GradientDescentOptimizer(0.05), np.inf)],
    ids=["name", "optimizer"],
)
def test_gradients_are_clipped_for_a_named_optimizer_alone(optimizer, largest, tmp_path):
    def make(**settings):
        return est.experimental.RNNEstimator(est.RegressionHead(), **settings)

    large = {r: changed("number", lambda x, y: (x, 1000 + y), repeats=r) for r in (True, False)}
    settings = {"optimizer": optimizer, "loop": 1, "num_steps": 1}
    with trained(tmp_path, large[True], make, **settings) as model:
        rows = model.predict(large[False], checkpoint_path=str(tmp_path / "model.ckpt-0"))
        first = [row["predictions"][0] for row in itertools.islice(rows, model_cases.BATCH_SIZE)]
        labels = 1000 + LABELS["number"][: model_cases.BATCH_SIZE, 0]
        gradient = 2 * np.mean(labels - first)
        found = model.get_variable_value("rnn_model/logits/bias")
    np.testing.assert_allclose(found, [0.05 * min(gradient, largest)], rtol=1e-5)


def to_sparse(features, labels):
    words = features["words"]
    values = tf.gather_nd(labels, words.indices)
    return features, tf.SparseTensor(words.indices, values, words.dense_shape)


def masked_by_hand(features, labels):
    """The mask that there is without one, and other labels and weights of padding."""
    mask = tf.not_equal(tf.sparse.to_dense(features["words"]), "")
    weights = tf.where(mask, features["step_weight"], 9)
    features = {**features, "sequence_mask": mask, "step_weight": weights}
    return features, tf.where(mask, labels, 1 - labels)


def test_only_steps_that_are_no_padding_count(tmp_path):
    settings = {"return_sequences": True, "weight_column": "step_weight"}
    steps = cases.sequence_input_fn("two_steps", repeats=True)
    with trained(tmp_path / "steps", steps, **settings) as model:
        expected = model.get_variable_value("rnn_model/logits/kernel")
        result = model.evaluate(cases.sequence_input_fn("two_steps", repeats=False))
        rows = list(model.predict(cases.sequence_input_fn("two_steps", repeats=False)))
    is_step = cases.SEQUENCES["words"] != ""
    mean = np.average(LABELS["two_steps"][is_step], weights=cases.SEQUENCES["step_weight"][is_step])
    assert result["label/mean"] == pytest.approx(mean)
    np.testing.assert_array_equal([row["sequence_mask"] for row in rows], is_step)
    assert rows[0]["logits"].shape == (5, 1)
    for change in (to_sparse, masked_by_hand):
        with trained(tmp_path / change.__name__, changed("two_steps", change), **settings) as model:
            found = model.get_variable_value("rnn_model/logits/kernel")
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=change.__name__)


def test_the_loss_fn_of_a_step_gets_all_features(tmp_path):
    shapes = []

    def loss_fn(labels, logits, features):
        shapes.append({key: value.shape.rank for key, value in features.items()})
        return tf.square(tf.cast(labels, tf.float32) - logits)

    def make(**settings):
        head = est.BinaryClassHead(loss_fn=loss_fn)
        return est.experimental.RNNEstimator(head, return_sequences=True, **settings)

    with trained(tmp_path, cases.sequence_input_fn("two_steps", repeats=True), make):
        assert shapes[0].items() >= {"sequence_mask": 2, "x": 2, "step_weight": 2}.items()


def first_step_only(features, labels):
    mask = tf.one_hot(tf.zeros([tf.shape(labels)[0]], tf.int32), cases.NUM_TIMES) > 0
    return {**features, "mine": mask}, labels


def test_a_user_defined_mask_says_which_steps_count(tmp_path):
    settings = {"return_sequences": True, "sequence_mask": "mine", "loop": 1}
    with trained(tmp_path, changed("two_steps", first_step_only), **settings) as model:
        result = model.evaluate(changed("two_steps", first_step_only, repeats=False))
    assert result["label/mean"] == pytest.approx(LABELS["two_steps"][:, 0].mean())


def without_steps(features, labels):
    def empty(sequences):
        shape = tf.stack([sequences.dense_shape[0], 0])
        return tf.SparseTensor(tf.zeros([0, 2], tf.int64), sequences.values[:0], shape)

    return {
        **features,
        "words": empty(features["words"]),
        "values": empty(features["values"]),
    }, labels


def without_labels(features, labels):
    features, labels = without_steps(features, labels)
    return features, labels[:, :0]


def test_a_batch_of_empty_sequences_changes_no_weight(tmp_path):
    settings = {"return_sequences": True, "optimizer": "SGD"}
    with trained(tmp_path, changed("two_steps", without_labels), **settings) as model:
        rows = list(model.predict(changed("two_steps", without_labels, repeats=False)))
    before, after = (model_cases.read_variables(str(tmp_path), step) for step in (0, 6))
    for name in set(before) - {"global_step"}:
        np.testing.assert_array_equal(after[name], before[name], name)
    assert len(before) > 5
    assert np.isfinite([row["logits"] for row in rows]).all()
    assert not any(row["sequence_mask"].any() for row in rows)


def test_any_head_predicts_from_empty_sequences(tmp_path):
    def make(**settings):
        return est.experimental.RNNEstimator(est.PoissonRegressionHead(), **settings)

    positive = changed("number", lambda features, labels: (features, tf.abs(labels)))
    with trained(tmp_path, positive, make) as model:
        rows = list(model.predict(changed("number", without_steps, repeats=False)))
        bias = model.get_variable_value("rnn_model/logits/bias")
    np.testing.assert_allclose([row["logits"][0] for row in rows], bias[0], rtol=1e-6)


def test_a_head_for_each_step_is_exported(tmp_path):
    columns = [*cases.sequence_columns(), tf.feature_column.numeric_column("x", [2])]
    receiver_fn = est.export.build_parsing_serving_input_receiver_fn(
        tf.feature_column.make_parse_example_spec(columns)
    )

    def make(**settings):
        head = est.MultiClassHead(5, name="steps")
        return est.experimental.RNNEstimator(head, return_sequences=True, **settings)

    steps = cases.sequence_input_fn("five_steps", repeats=True)
    with trained(tmp_path / "model", steps, make) as model:
        path = model.export_saved_model(str(tmp_path / "export"), receiver_fn)
    example = tf.train.Example()
    features = example.features.feature
    features["words"].bytes_list.value.extend([b"ant", b"bee"])
    features["values"].float_list.value.extend([1.0, 2.0])
    features["x"].float_list.value.extend([1.0, 2.0])
    predict = tf.saved_model.load(path.decode()).signatures["predict"]
    assert predict(tf.constant([example.SerializeToString()]))["class_ids"].shape == (1, 2, 1)
