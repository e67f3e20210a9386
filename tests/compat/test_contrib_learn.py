"""tf.contrib's hyperparameters, and what it makes of an Estimator of tf.estimator."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.compat.contrib import make_contrib
from tests.toy import Model, numbers

contrib = make_contrib(has_slim=False)


def test_hparams_are_parsed_as_their_own_types():
    hparams = contrib.training.HParams(rate=0.1, units=[8, 4], name="x", is_on=False)
    assert hparams.parse("rate=1,units=[2,3,5],is_on=true,units[1]=7") is hparams
    assert hparams.values() == {"rate": 1.0, "units": [2, 7, 5], "name": "x", "is_on": True}
    assert hparams.parse_json('{"name": "y"}').get("name") == "y"
    assert "rate" in hparams
    assert hparams.get("nothing", 3) == 3
    assert hparams.to_json(sort_keys=True).startswith('{"is_on": true, "name": "y"')
    assert repr(hparams).startswith("HParams(is_on=True, name='y', rate=1.0")
    hparams.del_hparam("rate")
    hparams.del_hparam("rate")
    assert "rate" not in hparams
    assert hparams.to_json(separators=(",", ":")) == '{"units":[2,7,5],"name":"y","is_on":true}'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (0.1, 1, 1.0),
        (0.1, np.float32(0.5), 0.5),
        (3, np.int64(4), 4),
        (np.float32(0.1), "0.5", np.float32(0.5)),
        (True, "False", False),
        (False, "1", True),
        (None, "x", "x"),
        (0.1, None, None),
        ("x", "0.1", "0.1"),
    ],
)
def test_a_value_becomes_one_of_the_hparams_type(old, new, expected):
    hparams = contrib.training.HParams(x=old, other=1)
    hparams.set_hparam("x", new)
    assert (hparams.x, type(hparams.x)) == (expected, type(expected))


@pytest.mark.parametrize("listed", ["[a,b]", "[ a, b ]", "[a b]", "[a , b,]"])
def test_a_list_is_parsed_with_commas_or_spaces(listed):
    hparams = contrib.training.HParams(names=["x"], last=0)
    assert hparams.parse(f"names={listed},last=1").values() == {"names": ["a", "b"], "last": 1}


def test_what_an_hparam_cannot_be_is_named():
    hparams = contrib.training.HParams(rate=0.1, units=[8, 4], name="x", is_on=False)
    for wrong, error in [
        (lambda: hparams.parse("unit[0]=3"), "`name` .'unit'. is unknown. Did you mean 'units'"),
        (lambda: hparams.parse("units[2]=3"), "`units.2.` is given, but `units` .* has 2 values. "),
        (lambda: hparams.parse("units[0]=[3]"), "the value ...3... none."),
        (lambda: hparams.parse("rate[0]=3"), "`rate.0.` is given, but `rate` .0.1. must be a list"),
        (lambda: hparams.parse("rate="), "`value` .''. of 'rate' must be of type float"),
        (lambda: hparams.parse("unit=3"), "`name` .'unit'. is unknown. Did you mean 'units'"),
        (lambda: hparams.parse("units=3"), "`value` .'3'. of 'units' must be a list"),
        (lambda: hparams.parse("units=[x]"), "`value` .'x'. of 'units' must be of type int"),
        (lambda: hparams.parse("a b"), "`values` .'a b'. must be like 'a=1,b=.2,3.'"),
        (lambda: hparams.add_hparam("units", 3), "`name` .'units'. is taken"),
        (lambda: hparams.add_hparam("new", []), "`value` of 'new' is an empty list"),
        (lambda: hparams.set_hparam("is_on", 3), "`value` .3. of 'is_on' must be of type bool"),
        (lambda: hparams.parse("is_on=yes"), "`value` .'yes'. of 'is_on' must be of type bool"),
        (lambda: hparams.set_hparam("rate", True), "`value` .True. of 'rate' must be of type floa"),
        (lambda: hparams.set_hparam("units", [0.5]), "`value` .0.5. of 'units' must be of type in"),
    ]:
        with pytest.raises(ValueError, match=error):
            wrong()
    assert hparams.values() == {"rate": 0.1, "units": [8, 4], "name": "x", "is_on": False}


class Saves(est.CheckpointSaverListener):
    """Records the steps that are saved."""

    def __init__(self):
        self.steps = []

    def after_save(self, session, global_step_value):
        self.steps.append(int(global_step_value))


def test_an_experiment_trains_evaluates_and_exports(tmp_path):
    saves = Saves()

    def experiment_fn(run_config, hparams):
        return contrib.learn.Experiment(
            est.Estimator(Model(), config=run_config),
            numbers(),
            numbers(2),
            train_steps=hparams.steps,
            eval_steps=None,
            eval_delay_secs=0,
            saving_listeners=[saves],
        )

    config = contrib.learn.RunConfig(model_dir=str(tmp_path))
    hparams = contrib.training.HParams(steps=3)
    runner = contrib.learn.python.learn.learn_runner
    results, _ = runner.run(experiment_fn, run_config=config, hparams=hparams)
    assert (results["global_step"], results["mean"]) == (3, 0.5)
    assert saves.steps == [0, 3]
    experiment = experiment_fn(config, hparams)
    assert experiment.evaluate(name="again")["global_step"] == 3
    assert experiment.test()["global_step"] == 4
    assert saves.steps[-1] == 4
    hparams.steps = 6
    runner.run(experiment_fn, run_config=config, schedule="train", hparams=hparams)
    assert saves.steps[-1] == 6
    with pytest.raises(ValueError, match="`schedule` .'fly'."):
        runner.run(experiment_fn, run_config=config, schedule="fly", hparams=hparams)
    with pytest.raises(ValueError, match="Pass `run_config`"):
        runner.run(experiment_fn)
    with pytest.raises(ValueError, match="`hparams` .* are passed on together with `run_config`"):
        runner.run(lambda output_dir: experiment, str(tmp_path), hparams=hparams)
    with pytest.raises(ValueError, match="`eval_metrics` must be None"):
        contrib.learn.Experiment(experiment.estimator, numbers(), numbers(), eval_metrics={})


def test_forward_features_predicts_them_too(tmp_path):
    def model_fn(features, labels, mode):
        spec = Model()(features["x"], labels, mode)
        return spec._replace(predictions={"y": spec.predictions})

    def input_fn():
        return tf.data.Dataset.from_tensors({"x": [1.0, 2.0], "id": [7, 8]})

    model = est.Estimator(model_fn, str(tmp_path))
    model.train(input_fn)
    for keys in ("id", ["id"], None):
        forwarded = contrib.estimator.forward_features(model, keys)
        rows = list(forwarded.predict(input_fn))
        assert [row["id"] for row in rows] == [7, 8]
        assert set(rows[0]) == {"y", "id"} | ({"x"} if keys is None else set())
    assert forwarded.evaluate(input_fn) == model.evaluate(input_fn)


def test_forward_features_fills_sparse_ones_up(tmp_path):
    def model_fn(features, labels, mode):
        return est.EstimatorSpec(mode, predictions={"y": tf.sparse.to_dense(features["x"])})

    def input_fn():
        return tf.data.Dataset.from_tensors(
            {"x": tf.compat.v1.SparseTensorValue([[0, 1], [1, 0]], [3.0, 4.0], [2, 2])}
        )

    forward = contrib.estimator.forward_features
    forwarded = forward(est.Estimator(model_fn, str(tmp_path)), None, {"x": -1.0})
    assert [row["x"].tolist() for row in forwarded.predict(input_fn)] == [[-1, 3], [4, -1]]


X = {"x": [1.0]}


@pytest.mark.parametrize(
    ("features", "predictions", "keys", "message"),
    [
        (X, {"y": 1.0}, "name", "`keys` has 'name', which is not a feature. There are: x"),
        (X, {"x": 1.0}, None, "`keys` has 'x', which is a prediction already. Rename it."),
        (X, 1.0, None, "needs a dict of predictions, and the model has <tf.Tensor"),
        ([1.0], {"y": 1.0}, None, "needs a dict of features, and the model has <tf.Tensor"),
        (
            {"x": tf.compat.v1.SparseTensorValue([[0, 0]], [1.0], [1, 1])},
            {"y": 1.0},
            ["x"],
            "`keys` has 'x', which is sparse. Give its default value in `sparse_default_values`.",
        ),
    ],
)
def test_forward_features_names_what_it_cannot_predict(features, predictions, keys, message):
    def model_fn(features, labels, mode):
        tensors = tf.nest.map_structure(tf.constant, predictions)
        return est.EstimatorSpec(mode, predictions=tensors)

    forwarded = contrib.estimator.forward_features(est.Estimator(model_fn), keys)
    with pytest.raises(ValueError, match=message):
        list(forwarded.predict(lambda: tf.data.Dataset.from_tensors(features)))
