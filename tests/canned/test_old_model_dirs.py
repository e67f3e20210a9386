"""A model_dir that a ready-made model of tf.estimator 2.15 wrote goes on here."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.data import old_programs
from tests.data.old_programs import HERE

FC = tf.feature_column
EMBEDDING = old_programs.CANNED_EMBEDDING


def make(model_dir, vocabulary="old", size=6, **kwargs):
    words = FC.categorical_column_with_vocabulary_file(
        "word", str(HERE / f"{vocabulary}_vocabulary.txt"), size
    )
    columns = [FC.embedding_column(words, dimension=2), FC.numeric_column("x", [3])]
    return est.DNNClassifier(
        [4], columns, str(model_dir), n_classes=len(old_programs.OLD_VOCABULARY), **kwargs
    )


def test_it_evaluates_predicts_and_trains_on(tmp_path):
    shutil.copytree(HERE / "canned", tmp_path, dirs_exist_ok=True)
    theirs = json.loads((HERE / "canned.json").read_text())
    with make(tmp_path) as model:
        evaluation = model.evaluate(old_programs.canned_input_fn)
        assert set(evaluation) == set(theirs["evaluation"])
        for key, value in theirs["evaluation"].items():
            assert evaluation[key] == pytest.approx(value, rel=1e-5), key
        for row, expected in zip(
            model.predict(old_programs.canned_input_fn), theirs["predictions"], strict=True
        ):
            assert set(row) == set(expected)
            np.testing.assert_allclose(row["probabilities"], expected["probabilities"], rtol=1e-5)
            assert [word.decode() for word in row["classes"]] == expected["classes"]
        model.train(lambda: old_programs.canned_input_fn(True), steps=2)
        assert model.train_result.global_step == 12


def test_another_vocabulary_starts_at_the_entries_that_both_have(tmp_path):
    settings = est.WarmStartSettings(
        str(HERE / "canned"),
        vars_to_warm_start=".*(embedding_weights|kernel|bias).*",
        var_name_to_vocab_info={
            EMBEDDING: est.VocabInfo(
                new_vocab=str(HERE / "new_vocabulary.txt"),
                new_vocab_size=len(old_programs.NEW_VOCABULARY),
                num_oov_buckets=0,
                old_vocab=str(HERE / "old_vocabulary.txt"),
            )
        },
    )
    new = old_programs.NEW_VOCABULARY
    with make(tmp_path, "new", len(new), warm_start_from=settings, optimizer=_stays) as model:
        model.train(lambda: old_programs.canned_input_fn(True), steps=1)
        found = model.get_variable_value(EMBEDDING)
        kernel = model.get_variable_value("dnn/hiddenlayer_0/kernel")
    old = tf.train.load_checkpoint(str(HERE / "canned"))
    for i, word in enumerate(new):
        if word in old_programs.OLD_VOCABULARY:
            row = old_programs.OLD_VOCABULARY.index(word)
            np.testing.assert_array_equal(found[i], old.get_tensor(EMBEDDING)[row])
    np.testing.assert_array_equal(kernel, old.get_tensor("dnn/hiddenlayer_0/kernel"))


def _stays():
    return tf.compat.v1.train.GradientDescentOptimizer(0.0)


def make_recurrent(model_dir):
    column = FC.sequence_numeric_column("x")
    return est.experimental.RNNEstimator(
        est.RegressionHead(),
        [column],
        cell_type=tf.keras.layers.LSTMCell,
        units=[2],
        model_dir=str(model_dir),
    )


def sequences():
    x = tf.sparse.from_dense(np.float32([[1, 2, 3], [4, 5, 0]]))
    return tf.data.Dataset.from_tensors(({"x": x}, np.float32([[1], [0]]))).repeat(4)


def labelled():
    features = {"x": tf.compat.v1.sparse_placeholder(tf.float32, [None, None])}
    labels = tf.compat.v1.placeholder(tf.float32, [None, 1])
    receiver = {"x": features["x"], "label": labels}
    return est.export.SupervisedInputReceiver(features, labels, receiver)


def test_a_checkpoint_without_the_seeds_of_keras_3_is_restored(tmp_path):
    """2.15's Keras kept no seeds in variables; a cell of Keras 3 has one even without dropout."""
    made = make_recurrent(tmp_path / "made").train(sequences)
    values = {n: made.get_variable_value(n) for n in made.get_variable_names() if "seed" not in n}
    assert len(values) < len(made.get_variable_names())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(name, initializer=value) for name, value in values.items()
        ]
        session.run([variable.initializer for variable in variables])
        saver = tf.compat.v1.train.Saver(variables)
        (tmp_path / "old").mkdir()
        old = saver.save(session, str(tmp_path / "old/model.ckpt"), global_step=4)

    with make_recurrent(tmp_path / "old") as model:
        assert model.evaluate(sequences) == made.evaluate(sequences)
        receiver = est.export.build_parsing_serving_input_receiver_fn(
            {"x": tf.io.VarLenFeature(tf.float32)}
        )
        model.experimental_export_all_saved_models(
            str(tmp_path / "exports"),
            {est.ModeKeys.PREDICT: receiver, est.ModeKeys.EVAL: labelled},
            checkpoint_path=old,
        )
        model.train(sequences, steps=2)
        assert model.train_result.global_step == 6
        assert set(model.get_variable_names()) == set(made.get_variable_names())
