"""Private methods of tf.estimator.Estimator that subclasses in the wild call or override."""

import pytest
import tensorflow as tf

import estimator as est
from estimator.estimators.old_methods import NOT_CALLED
from tests.toy import RATE, Model, numbers


class Unchecked(est.Estimator):
    """Overrides what it likes."""

    def _assert_members_are_not_overridden(self):
        pass


class Doubling(Unchecked):
    """Doubles the features, and counts calls by mode."""

    def __init__(self, *args, **kwargs):
        self.calls = []
        super().__init__(*args, **kwargs)

    def _call_model_fn(self, features, labels, mode, config):
        assert config is self.config
        self.calls.append(("model", mode))
        features = tf.cast(features, tf.float32) * 2
        return super()._call_model_fn(features, labels, mode, config)

    def _call_input_fn(self, input_fn, mode, input_context=None):
        self.calls.append(("input", mode))
        return super()._call_input_fn(input_fn, mode, input_context).map(lambda x: x + 1)


def receiver():
    x = tf.compat.v1.placeholder(tf.float32, [None], "x")
    return est.export.TensorServingInputReceiver(x, x)


def test_what_overrides_the_calls_is_called_in_every_mode(tmp_path):
    model = Doubling(Model(), str(tmp_path))
    model.train(numbers(start=2), steps=1)
    assert model.get_variable_value("w") == 2 * 3 * RATE
    assert model.evaluate(numbers(1))["mean"] == 2
    assert list(model.predict(numbers(1))) == [2 * 1 * 2 * 3 * RATE]
    model.export_saved_model(str(tmp_path / "export"), receiver)
    modes = (est.ModeKeys.TRAIN, est.ModeKeys.EVAL, est.ModeKeys.PREDICT)
    assert set(model.calls) == {(what, mode) for what in ("input", "model") for mode in modes}


def test_the_calls_give_what_the_functions_return():
    def input_fn(mode, params):
        return tf.data.Dataset.from_tensors(({"x": [params["x"]]}, [1])).repeat(), mode

    def model_fn(features, labels, mode, params):
        return est.EstimatorSpec(mode, predictions=tf.stack([features, labels, params["x"]]))

    model = est.Estimator(model_fn, params={"x": 3})
    with tf.Graph().as_default():
        dataset, mode = model._call_input_fn(input_fn, est.ModeKeys.TRAIN)
        assert mode == est.ModeKeys.TRAIN
        step = model._create_and_assert_global_step(tf.compat.v1.get_default_graph())
        assert step is tf.compat.v1.train.get_global_step()
        spec = model._call_model_fn(1.0, 2, est.ModeKeys.PREDICT, model.config)
        assert tf.get_static_value(spec.predictions).tolist() == [1, 2, 3]
        features, labels, hooks = model._get_features_and_labels_from_input_fn(
            lambda: input_fn(None, {"x": 7})[0], est.ModeKeys.EVAL
        )
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            x, y = session.run([features["x"], labels])
            assert (x.tolist(), y.tolist()) == ([7], [1])
        features, labels, hooks = model._get_features_and_labels_from_input_fn(
            lambda: (tf.constant([7]), tf.constant([1])), est.ModeKeys.EVAL
        )
        with tf.compat.v1.Session() as session:
            assert session.run(features + labels).tolist() == [8]
        assert hooks == []
        features, hooks = model._get_features_from_input_fn(
            lambda: (tf.constant([7]), tf.constant([1])), est.ModeKeys.PREDICT
        )
        with tf.compat.v1.Session() as session:
            assert session.run(features).tolist() == [7]
        assert hooks == []
    assert dataset.element_spec[1].shape == [1]


def test_a_dataset_in_the_graph_of_a_model_leaves_names_to_variables():
    model = est.Estimator(lambda features, mode: None)
    with tf.Graph().as_default():
        for mode in (est.ModeKeys.EVAL, est.ModeKeys.PREDICT):
            model._get_features_and_labels_from_input_fn(
                lambda: tf.data.Dataset.range(4).repeat(2).batch(2), mode
            )
        for name in ("count", "start", "batch_size"):
            assert tf.compat.v1.get_variable(name, []).name == f"{name}:0"


@pytest.mark.parametrize("name", ["_train_model", "_get_features_and_labels_from_input_fn"])
def test_what_overrides_a_method_that_is_not_called_is_refused(name):
    mine = type("Mine", (Unchecked,), {name: lambda self: None})
    with pytest.raises(ValueError, match=f"Mine overrides `{name}`, which the library does not"):
        mine(Model())


def test_a_method_that_is_not_there_says_what_replaces_it():
    model = est.Estimator(Model())
    for name, instead in NOT_CALLED.items():
        with pytest.raises(AttributeError) as caught:
            getattr(model, name)
        assert str(caught.value) == f"`{name}` of tf.estimator is not provided: {instead}."
    with pytest.raises(AttributeError, match="'Estimator' object has no attribute '_nothing'"):
        _ = model._nothing


def test_overriding_a_call_needs_the_check_overridden_too():
    mine = type("Mine", (est.Estimator,), {"_call_model_fn": Doubling._call_model_fn})
    with pytest.raises(ValueError, match="Mine overrides _call_model_fn of Estimator"):
        mine(Model())


def test_programs_read_what_the_estimator_was_given(tmp_path):
    session_config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=3)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    config = est.RunConfig(session_config=session_config, train_distribute=strategy)
    settings = est.WarmStartSettings(str(tmp_path / "old"))
    model = est.Estimator(lambda features, params: None, str(tmp_path), config, {"a": 1}, settings)
    assert model._session_config == session_config
    assert (model._train_distribution, model._eval_distribution) == (strategy, None)
    assert model._device_fn is None
    assert model._warm_start_settings is settings
    assert (model._params, model._model_dir) == ({"a": 1}, str(tmp_path))


def test_a_method_that_is_replaced_on_the_estimator_itself_is_called(tmp_path):
    model = est.Estimator(Model(), str(tmp_path))
    original, modes = model._call_model_fn, []

    def noting(features, labels, mode, config):
        modes.append(mode)
        return original(features, labels, mode, config)

    model._call_model_fn = noting
    model.train(numbers(), steps=1)
    model.evaluate(numbers(1))
    assert modes == [est.ModeKeys.TRAIN, est.ModeKeys.EVAL]
