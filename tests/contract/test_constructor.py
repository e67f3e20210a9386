"""Estimator's constructor, its properties, and what a subclass may do."""

import copy
import functools
import os
import pathlib
import pickle

import pytest

from tests.contract.names import (
    PREDICT,
    TRAIN,
    est,
    forever,
    mean_model_fn,
    tf,
    v1est,
    weight_after,
)


def with_params(features, labels, mode, params):
    del params
    return mean_model_fn(features, labels, mode)


def test_arguments_by_position(tmp_path):
    config = est.RunConfig(tf_random_seed=3)
    made = est.Estimator(with_params, os.fspath(tmp_path), config, {"a": 1})
    assert made.model_dir == os.fspath(tmp_path)
    assert made.config.tf_random_seed == 3
    assert made.params == {"a": 1}


def test_default_config_is_the_default_run_config(tmp_path):
    config = est.Estimator(mean_model_fn, os.fspath(tmp_path)).config
    assert isinstance(config, est.RunConfig)
    assert (config.save_checkpoints_secs, config.keep_checkpoint_max) == (600, 5)


def test_default_params_are_an_empty_dict(tmp_path):
    assert est.Estimator(mean_model_fn, os.fspath(tmp_path)).params == {}


def test_config_has_the_model_dir(tmp_path):
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path), est.RunConfig())
    assert made.config.model_dir == os.fspath(tmp_path)


def test_model_dir_of_the_config(tmp_path):
    config = est.RunConfig(model_dir=os.fspath(tmp_path))
    assert est.Estimator(mean_model_fn, config=config).model_dir == os.fspath(tmp_path)


def test_model_dir_may_be_given_twice(tmp_path):
    config = est.RunConfig(model_dir=os.fspath(tmp_path))
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path), config)
    assert made.model_dir == os.fspath(tmp_path)


def test_two_model_dirs_are_a_value_error(tmp_path):
    config = est.RunConfig(model_dir=os.fspath(tmp_path))
    with pytest.raises(ValueError, match="model_dir"):
        est.Estimator(mean_model_fn, "/other", config)


def test_model_dir_may_be_a_path_object(tmp_path):
    made = est.Estimator(mean_model_fn, pathlib.Path(tmp_path))
    assert made.model_dir == os.fspath(tmp_path)


@pytest.mark.only_2_15("a pattern as `model_dir`")
@pytest.mark.parametrize("name", ["run*", "run?"])
def test_a_model_dir_may_be_a_pattern(name, tmp_path):
    trained = est.Estimator(mean_model_fn, os.fspath(tmp_path / name)).train(forever(), steps=1)
    assert trained.get_variable_value("global_step") == 1


@pytest.mark.only_here("a pattern as `model_dir`")
@pytest.mark.parametrize("name", ["run*", "run?", "run[1]"])
def test_a_model_dir_that_is_a_pattern_is_a_value_error(name, tmp_path):
    with pytest.raises(ValueError, match="must not contain"):
        est.Estimator(mean_model_fn, os.fspath(tmp_path / name))


@pytest.mark.parametrize("given", [None, ""], ids=["None", "empty"])
def test_without_model_dir_a_temporary_one_is_made(given):
    assert os.path.isdir(est.Estimator(mean_model_fn, given).model_dir)


def test_two_temporary_model_dirs_differ():
    assert est.Estimator(mean_model_fn).model_dir != est.Estimator(mean_model_fn).model_dir


def test_constructor_leaves_a_missing_model_dir_missing(tmp_path):
    est.Estimator(mean_model_fn, os.fspath(tmp_path / "later"))
    assert not os.path.exists(tmp_path / "later")


@pytest.mark.parametrize("config", [{"a": 1}, "config", est.RunConfig], ids=repr)
def test_wrong_config_is_a_value_error(config):
    with pytest.raises(ValueError, match="config"):
        est.Estimator(mean_model_fn, config=config)


def takes_x(x):
    del x


def takes_labels(labels, mode):
    del labels, mode


def takes_more(features, labels, mode, more):
    del features, labels, mode, more


@pytest.mark.parametrize(
    "model_fn",
    [None, takes_x, takes_labels, takes_more],
    ids=lambda fn: getattr(fn, "__name__", "None"),
)
def test_wrong_model_fn_is_a_value_error(model_fn):
    with pytest.raises(ValueError, match="model_fn"):
        est.Estimator(model_fn)


def test_params_that_model_fn_does_not_take_are_a_value_error():
    with pytest.raises(ValueError, match="params"):
        est.Estimator(mean_model_fn, params={"a": 1})


def test_model_fn_may_take_params_that_are_not_given():
    assert est.Estimator(with_params).params == {}


class Object:
    def __call__(self, features, labels, mode):
        return mean_model_fn(features, labels, mode)

    def method(self, features, labels, mode):
        return mean_model_fn(features, labels, mode)


CALLABLES = {
    "a function of the features": lambda features: None,
    "an object": Object(),
    "a bound method": Object().method,
    "a partial": functools.partial(with_params, params=3),
    "a partial by position": functools.partial(lambda x, features, mode: None, 1),
    "all arguments": lambda features, labels, mode, params, config: None,
    "another order": lambda mode, features, config, labels: None,
}


@pytest.mark.parametrize("case", CALLABLES)
def test_model_fn_may_be(case):
    assert callable(est.Estimator(CALLABLES[case]).model_fn)


def test_params_are_copied_deeply():
    given = {"a": [1]}
    made = est.Estimator(with_params, params=given)
    given["a"].append(2)
    assert made.params == {"a": [1]}


class Params:
    """Hyperparameters in an object of the program's own."""

    rate = 3


def test_params_may_be_any_object():
    assert est.Estimator(with_params, params=Params()).params.rate == 3


def test_changing_the_params_property_changes_nothing():
    made = est.Estimator(with_params, params={"a": [1]})
    made.params["a"].append(2)
    assert made.params == {"a": [1]}


@pytest.mark.parametrize(
    ("name", "expected"), [(None, "eval"), ("", "eval"), ("test", "eval_test")]
)
def test_eval_dir(tmp_path, name, expected):
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    assert made.eval_dir(name) == os.fspath(tmp_path / expected)


@pytest.mark.parametrize("name", ["model_dir", "config", "params", "model_fn"])
def test_properties_are_read_only(name):
    with pytest.raises(AttributeError):
        setattr(est.Estimator(mean_model_fn), name, 1)


def test_latest_checkpoint_before_training_is_none(tmp_path):
    assert est.Estimator(mean_model_fn, os.fspath(tmp_path)).latest_checkpoint() is None


@pytest.mark.parametrize("missing", [False, True], ids=["empty", "missing"])
def test_variables_before_training_are_a_value_error(tmp_path, missing):
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path / "no" if missing else tmp_path))
    with pytest.raises(ValueError):
        made.get_variable_names()
    with pytest.raises(ValueError):
        made.get_variable_value("w")


def test_model_fn_property_binds_params():
    seen = {}

    def model_fn(features, labels, mode, params, config):
        seen.update(labels=labels, mode=mode, params=params, config=config)
        return est.EstimatorSpec(mode, predictions=features)

    made = est.Estimator(model_fn, params={"a": 1})
    with tf.Graph().as_default():
        features = tf.constant([1.0])
        spec = made.model_fn(features, None, PREDICT, made.config)
    assert spec.predictions is features
    assert (seen["labels"], seen["mode"], seen["params"]) == (None, PREDICT, {"a": 1})
    assert isinstance(seen["config"], est.RunConfig)


def test_model_fn_property_passes_what_model_fn_takes():
    def model_fn(features, mode):
        return est.EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=tf.no_op())

    made = est.Estimator(model_fn)
    with tf.Graph().as_default():
        spec = made.model_fn(tf.constant([1.0]), None, TRAIN, made.config)
    assert spec.mode == TRAIN


MEMBERS = [
    "train",
    "evaluate",
    "predict",
    "export_saved_model",
    "experimental_export_all_saved_models",
    "get_variable_names",
    "get_variable_value",
    "eval_dir",
]


@pytest.mark.parametrize("name", MEMBERS)
def test_overriding_a_member_is_a_value_error(name):
    subclass = type("Subclass", (est.Estimator,), {name: lambda self: None})
    with pytest.raises(ValueError, match=name):
        subclass(mean_model_fn)


@pytest.mark.parametrize("name", ["model_dir", "config", "params"])
def test_overriding_a_property_is_a_value_error(name):
    subclass = type("Subclass", (est.Estimator,), {name: property(lambda self: None)})
    with pytest.raises(ValueError, match=name):
        subclass(mean_model_fn)


def test_a_subclass_may_override_latest_checkpoint():
    class Subclass(est.Estimator):
        def latest_checkpoint(self):
            return "mine"

    assert Subclass(mean_model_fn).latest_checkpoint() == "mine"


def test_a_subclass_may_add_members():
    class Subclass(est.Estimator):
        def __init__(self, rate):
            super().__init__(mean_model_fn)
            self.rate = rate

        def twice(self):
            return 2 * self.rate

    assert Subclass(3).twice() == 6


@pytest.mark.parametrize("way", ["method", "staticmethod"])
def test_a_subclass_may_switch_the_check_off(way):
    def allow(self):
        del self

    class Subclass(est.Estimator):
        _assert_members_are_not_overridden = allow if way == "method" else staticmethod(allow)

        def eval_dir(self, name=None):
            return "mine"

    assert Subclass(mean_model_fn).eval_dir() == "mine"


def pickled(made):
    return pickle.loads(pickle.dumps(made))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_an_estimator_may_be_copied(tmp_path, copied):
    original = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    original.train(forever(2.0), steps=2)
    assert next(original.predict(forever(1.0)))["y"] == pytest.approx(weight_after(2, 2.0))
    assert original.evaluate(forever(2.0), steps=1)["global_step"] == 2
    made = copied(original)
    made.train(forever(2.0), steps=1)
    assert made.evaluate(forever(2.0), steps=1)["global_step"] == 3
    for one in (made, original):
        assert next(one.predict(forever(1.0)))["y"] == pytest.approx(weight_after(3, 2.0))


def test_estimators_of_v1_export_by_the_old_name_too():
    assert callable(v1est.Estimator.export_savedmodel)
    assert issubclass(est.Estimator, v1est.Estimator)


@pytest.mark.parametrize(
    "name",
    [
        "Estimator",
        "EstimatorSpec",
        "RunConfig",
        "TrainSpec",
        "EvalSpec",
        "ModeKeys",
        "WarmStartSettings",
        "VocabInfo",
        "BestExporter",
        "FinalExporter",
        "LatestExporter",
        "Exporter",
        "train_and_evaluate",
        "add_metrics",
    ],
)
def test_name_is_in_both_places(name):
    assert callable(getattr(est, name))
    assert callable(getattr(v1est, name))


def test_wrong_warm_start_is_a_value_error():
    with pytest.raises(ValueError, match="warm_start"):
        est.Estimator(mean_model_fn, warm_start_from=1)
