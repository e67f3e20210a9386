"""A model_dir that tf.estimator 2.15 left can be trained on here, with only the import changed.

The programs are in `tests/data/old_programs.py`; what 2.15 left, and what it then made of it, is in
`tests/data/tf_estimator_2_15`, by `tests/data/make_tf_estimator_2_15.py`.
"""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests import legacy_keras
from tests.data import old_programs
from tests.data.old_programs import HERE, MORE_STEPS, NUM_STEPS, V1

NAMES = [name for name in old_programs.PROGRAMS if (name == "batch_norm") == legacy_keras.IS_LEGACY]
STRATEGIES = {
    "no_strategy": {},
    "mirrored_x2": {"strategy": "mirrored", "num_replicas": 2},
    "central_storage_x2": {"strategy": "central_storage", "num_replicas": 2},
}
TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}


def of_2_15(name):
    return json.loads((HERE / f"{name}.json").read_text())


def check_close(actual, expected):
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, err_msg=name, **TOLERANCE)


def variables_of(model):
    return {name: model.get_variable_value(name) for name in model.get_variable_names()}


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def model_dir(name, tmp_path):
    """A copy of what 2.15 left."""
    return shutil.copytree(HERE / name, tmp_path / name)


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
def test_training_goes_on_as_2_15_would_have_gone_on(name, model_dir, loop):
    is_tpu = old_programs.PROGRAMS[name].is_tpu
    length = {"iterations_per_loop": loop}
    config = {"tpu_config": est.tpu.TPUConfig(**length)} if is_tpu else length
    model = old_programs.make_estimator(est, name, model_dir, **config)
    model.train(old_programs.PROGRAMS[name].input_fn, steps=MORE_STEPS)
    assert model.train_result.global_step == NUM_STEPS + MORE_STEPS
    # Every variable, also the slots and the powers of Adam's betas.
    check_close(variables_of(model), of_2_15(name)["variables"])


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_is_evaluated_and_predicted_with_as_by_2_15(name, model_dir, strategy):
    program, config = old_programs.PROGRAMS[name], STRATEGIES[strategy]
    # Under central_storage it is one replica that evaluates and predicts.
    num_replicas = 2 if strategy == "mirrored_x2" else 1
    batch_size = old_programs.BATCH_SIZE * num_replicas
    model = old_programs.make_estimator(est, name, model_dir, batch_size=batch_size, **config)
    with model:
        check_close(model.evaluate(program.input_fn), of_2_15(name)["evaluation"])
        predictions = list(model.predict(program.input_fn))
    expected = of_2_15(name)["predictions"]
    assert len(predictions) == len(expected) == len(old_programs.X)
    for actual, row in zip(predictions, expected, strict=True):
        check_close(actual, row)


class ReadAtStart(V1.train.SessionRunHook):
    """Keeps the values that the trainable variables begin with."""

    def after_create_session(self, session, coord):
        variables = V1.trainable_variables()
        names = [variable.name.partition(":")[0] for variable in variables]
        self.values = dict(zip(names, session.run(variables), strict=True))


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_model_starts_at_its_weights(name, tmp_path, strategy):
    program, config = old_programs.PROGRAMS[name], STRATEGIES[strategy]
    model = old_programs.make_estimator(
        est,
        name,
        str(tmp_path),
        str(HERE / name),
        old_programs.BATCH_SIZE * config.get("num_replicas", 1),
        **config,
    )
    hook = ReadAtStart()
    model.train(program.input_fn, [hook], steps=1)
    assert model.train_result.global_step == 1
    old = tf.train.load_checkpoint(str(HERE / name))
    expected = {}
    for variable in hook.values:
        whole, _, part = variable.partition("/part_")
        value = old.get_tensor(whole)
        num_parts = program.params["num_parts"] if part else 1
        expected[variable] = np.array_split(value, num_parts)[int(part or 0)]
    check_close(hook.values, expected)


if not legacy_keras.IS_LEGACY:

    def canned_model_fn(features, labels, mode):
        """The variables of a DNNClassifier by hand; it does not train."""
        words = tf.feature_column.categorical_column_with_vocabulary_file(
            "word", str(HERE / "old_vocabulary.txt"), 6
        )
        columns = [
            tf.feature_column.embedding_column(words, dimension=2),
            tf.feature_column.numeric_column("x", [3]),
        ]
        with V1.variable_scope("dnn"):
            with V1.variable_scope("input_from_feature_columns"):
                x = V1.feature_column.input_layer(features, columns)
            with V1.variable_scope("hiddenlayer_0"):
                kernel, bias = V1.get_variable("kernel", [5, 4]), V1.get_variable("bias", [4])
                x = tf.nn.relu(tf.matmul(x, kernel) + bias)
            with V1.variable_scope("logits"):
                kernel, bias = V1.get_variable("kernel", [4, 6]), V1.get_variable("bias", [6])
                logits = tf.matmul(x, kernel) + bias
        loss = tf.reduce_mean(logits)
        train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, predictions={"logits": logits}, loss=loss, train_op=train_op)

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_a_model_starts_at_the_weights_of_a_dnn_classifier(tmp_path, strategy):
        config = est.RunConfig(**STRATEGIES[strategy])
        model = est.Estimator(
            canned_model_fn, str(tmp_path), config, warm_start_from=str(HERE / "canned")
        )
        model.train(old_programs.canned_input_fn, steps=1)
        predictions = [row["logits"] for row in model.predict(old_programs.canned_input_fn)]
        expected = [row["logits"] for row in of_2_15("canned")["predictions"]]
        np.testing.assert_allclose(predictions, expected, **TOLERANCE)

    @pytest.mark.each_value
    @pytest.mark.parametrize("loop", [1, 100])
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_vocabularies_move_rows_and_columns_as_in_2_15(tmp_path, strategy, loop):
        model = est.Estimator(
            old_programs.make_warm_started_model_fn(est),
            str(tmp_path),
            est.RunConfig(iterations_per_loop=loop, **STRATEGIES[strategy]),
            warm_start_from=old_programs.make_warm_start_settings(est, str(HERE / "canned")),
        )
        model.train(old_programs.plain_input_fn, steps=1)
        check_close(variables_of(model), of_2_15("warm_start")["variables"])

    @pytest.mark.slow
    def test_all_of_this_holds_with_tf_compat_v1_layers():
        assert "8 passed" in legacy_keras.run_tests(__file__, "batch_norm")
