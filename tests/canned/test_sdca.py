"""LinearSDCA converges to the weights of tf.estimator 2.15; threads decide on the way there."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.canned import experimental_cases as cases
from tests.canned import model_cases, reference_data

LinearSDCA = est.experimental.LinearSDCA
STEPS = model_cases.NUM_STEPS
X = tf.feature_column.numeric_column("x", [2])


def weights_of(variables):
    return {key: value for key, value in variables.items() if key.endswith("weights")}


@pytest.mark.parametrize(("name", "tolerance"), [("sdca_2", 2e-4), ("sdca_numbers", 5e-3)])
def test_it_converges_to_the_weights_of_2_15(name, tolerance, tmp_path):
    theirs = reference_data.variables_at(name, STEPS)
    input_fn = cases.CASES[name].input_fn
    with reference_data.make(name, tmp_path, iterations_per_loop=7) as model:
        model.train(input_fn(repeats=True), max_steps=STEPS)
        ours = model_cases.read_variables(str(tmp_path), STEPS)
        assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}
        for key, value in weights_of(theirs).items():
            np.testing.assert_allclose(ours[key], value, atol=tolerance, err_msg=key)
        result = model.evaluate(input_fn(repeats=False))
        for key, value in reference_data.RESULTS[name]["evaluation"].items():
            assert result[key] == pytest.approx(value, abs=3 * tolerance), key


@pytest.mark.parametrize("loop", [1, 5])
def test_a_model_dir_of_2_15_remembers_its_examples(loop, tmp_path):
    theirs = reference_data.variables_at("sdca_2", STEPS)
    reference_data.write_checkpoint(theirs, tmp_path, STEPS)
    with reference_data.make("sdca_2", tmp_path, iterations_per_loop=loop) as model:
        model.train(cases.CASES["sdca_2"].input_fn(repeats=True), steps=loop)
    ours = model_cases.read_variables(str(tmp_path), STEPS + loop)
    for key, value in weights_of(theirs).items():
        np.testing.assert_allclose(ours[key], value, atol=2e-4, err_msg=key)


def batch(**changes):
    """An `input_fn` of one batch."""
    features = {"x": model_cases.FEATURES["x"], "key": cases.KEYS, **changes}
    labels = model_cases.LABELS["two"]
    return lambda: tf.data.Dataset.from_tensors((features, labels)).repeat()


def test_the_v1_form_has_the_variables_of_2_15(tmp_path):
    with est.compat.v1.LinearClassifier(
        [X], str(tmp_path), optimizer=est.compat.v1.experimental.LinearSDCA("key")
    ) as model:
        model.train(batch(), steps=5)
        # Seen with 2.15.1.
        assert set(model.get_variable_names()) == {
            "ShardedMutableHashTable-1-of-1-keys",
            "ShardedMutableHashTable-1-of-1-values",
            "global_step",
            "linear/linear/linear_model/bias_weights/part_0_unshrunk",
            "linear/linear/linear_model/x/weights/part_0_unshrunk",
            "linear/linear_model/bias_weights",
            "linear/linear_model/x/weights",
        }


def test_words_are_labels_and_a_user_defined_head_is_trained(tmp_path):
    words = np.array(["no", "yes"])[model_cases.LABELS["two"]]
    features = {"x": model_cases.FEATURES["x"], "key": cases.KEYS}

    def input_fn():
        return tf.data.Dataset.from_tensors((features, words))

    head = est.BinaryClassHead(label_vocabulary=["no", "yes"])
    with est.LinearEstimator(head, [X], str(tmp_path), optimizer=LinearSDCA("key")) as model:
        model.train(lambda: input_fn().repeat(), steps=10)
        assert model.evaluate(input_fn)["accuracy"] > 0.75


def test_an_embedding_keeps_its_values_and_only_its_weights_are_trained(tmp_path):
    words = tf.feature_column.categorical_column_with_vocabulary_list("word", model_cases.WORDS)
    column = tf.feature_column.embedding_column(words, 3)
    features = {"word": np.take(model_cases.WORDS, range(40), mode="wrap")[:, np.newaxis]}
    sdca = LinearSDCA("key")
    with est.LinearClassifier([column], model_dir=str(tmp_path), optimizer=sdca) as model:
        table = "linear/linear_model/word_embedding/embedding_weights"
        runs = []
        for _ in range(2):
            model.train(batch(**features), steps=2)
            runs.append({name: model.get_variable_value(name) for name in (table, WEIGHTS)})
        names = [name for name in model.get_variable_names() if "Table" not in name]
    assert all(name.startswith("linear/") for name in names if name != "global_step"), names
    np.testing.assert_array_equal(runs[0][table], runs[1][table])
    assert np.abs(runs[1][WEIGHTS]).min() > 0


WEIGHTS = "linear/linear_model/word_embedding/weights"


def test_a_step_changes_the_weights_of_its_categories_alone(tmp_path):
    ids = tf.feature_column.categorical_column_with_identity("id", 4)
    weights = "linear/linear_model/id/weights"

    def train(model_dir, num_ids):
        """Takes a step; each example has one of the first ids. Returns all variables."""
        sdca = LinearSDCA("key", symmetric_l1_regularization=0.1)
        with est.LinearClassifier([ids], model_dir=str(model_dir), optimizer=sdca) as model:
            model.train(batch(id=np.arange(40)[:, np.newaxis] % num_ids), steps=1)
            step = model.train_result.global_step
        return model_cases.read_variables(str(model_dir), step)

    values = train(tmp_path / "first", 4)
    values[weights][2:] = [[5], [6]]
    reference_data.write_checkpoint(values, tmp_path / "second", 1)
    found = train(tmp_path / "second", 2)
    np.testing.assert_array_equal(found[weights][2:], [[5], [6]])
    slot = found[f"{weights}_unshrunk"]
    np.testing.assert_array_equal(slot[2:], values[f"{weights}_unshrunk"][2:])
    assert (slot[:2] != values[f"{weights}_unshrunk"][:2]).all()
    shrunk = np.sign(slot) * np.maximum(np.abs(slot) - 0.1, 0)
    np.testing.assert_allclose(found[weights][:2], shrunk[:2], rtol=1e-5)


def linear(optimizer=None, **settings):
    return est.LinearClassifier([X], optimizer=optimizer or LinearSDCA("key"), **settings)


BAD = {
    "id": (lambda: LinearSDCA(3), "`example_id_column` (3) must be the name of a feature"),
    "partitions": (lambda: LinearSDCA("key", 0), "`num_loss_partitions` (0) must be at least 1"),
    "shards": (lambda: LinearSDCA("key", 1, 0), "`num_table_shards` (0) must be at least 1"),
    "l1": (
        lambda: LinearSDCA("key", symmetric_l1_regularization=-1),
        "`symmetric_l1_regularization` (-1) must be at least 0",
    ),
    "l2": (
        lambda: LinearSDCA("key", symmetric_l2_regularization=0),
        "`symmetric_l2_regularization` (0) must be positive",
    ),
    "adaptive": (lambda: LinearSDCA("key", adaptive=1), "`adaptive` (1) must be True or False"),
    "classes": (
        lambda: linear(n_classes=3),
        "LinearSDCA cannot train MultiClassHead with 3 logits",
    ),
    "numbers": (
        lambda: est.LinearRegressor([X], label_dimension=2, optimizer=LinearSDCA("key")),
        "LinearSDCA cannot train RegressionHead with 2 logits",
    ),
    "another head": (
        lambda: est.LinearEstimator(est.PoissonRegressionHead(), [X], optimizer=LinearSDCA("key")),
        "LinearSDCA cannot train PoissonRegressionHead",
    ),
    "losses": (
        lambda: est.LinearEstimator(
            est.RegressionHead(loss_fn=lambda labels, logits: abs(labels - logits)),
            [X],
            optimizer=LinearSDCA("key"),
        ),
        "of the head cannot be used with LinearSDCA, which trains with the squared loss alone",
    ),
    "combiner": (
        lambda: linear(sparse_combiner="mean"),
        "`sparse_combiner` ('mean') must be 'sum'",
    ),
    "warm start": (
        lambda: linear(warm_start_from="there"),
        "`warm_start_from` ('there') cannot be used with LinearSDCA",
    ),
    "a deep model": (
        lambda: est.DNNClassifier([3], [X], optimizer=LinearSDCA("key")),
        "`optimizer` (<estimator.canned.sdca.LinearSDCA",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_names_the_argument_and_the_rule(name):
    call, part = BAD[name]
    with pytest.raises(ValueError) as info:  # noqa: PT011 - the part is the match
        call()
    assert part in str(info.value)


@pytest.mark.parametrize(
    ("input_fn", "config", "message"),
    [
        (batch(key=np.arange(40)), {}, "feature 'key', must be a dense tensor of strings"),
        (
            batch(),
            {"strategy": "mirrored", "num_replicas": 2},
            "LinearSDCA cannot run on 2 replicas",
        ),
    ],
    ids=["numbers", "replicas"],
)
def test_training_says_what_it_cannot_use(input_fn, config, message, tmp_path):
    with (
        linear(model_dir=str(tmp_path), config=est.RunConfig(**config)) as model,
        pytest.raises(ValueError, match=message),
    ):
        model.train(input_fn, steps=1)


def test_ids_must_be_among_the_features(tmp_path):
    with (
        linear(LinearSDCA("name"), model_dir=str(tmp_path)) as model,
        pytest.raises(ValueError, match=r"`example_id_column` \('name'\) is not among the feature"),
    ):
        model.train(batch(), steps=1)
