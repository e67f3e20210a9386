"""Estimator and TPUEstimator can be subclassed; overriding a verb is an error that names it."""

import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers

MEMBERS = [
    "train",
    "evaluate",
    "predict",
    "export_saved_model",
    "export_savedmodel",
    "eval_dir",
    "get_variable_names",
    "get_variable_value",
    "model_dir",
    "config",
    "params",
]
BASES = pytest.mark.parametrize("base", [est.Estimator, est.tpu.TPUEstimator])


@BASES
def test_a_subclass_has_all_verbs_and_attributes_of_its_own(tmp_path, base):
    class Mine(base):
        def __init__(self, model_dir, rate):
            self.rate = rate
            super().__init__(self._my_model_fn, model_dir, params={"rate": rate})

        def _my_model_fn(self, features, labels, mode, params):
            assert params["rate"] == self.rate == 3
            return Model()(features, labels, mode)

        def train_twice(self, input_fn):
            return self.train(input_fn, steps=1).train(input_fn, steps=1)

    mine = Mine(str(tmp_path / "model"), 3)
    assert mine.train_twice(numbers()) is mine
    assert mine.evaluate(numbers(4))["global_step"] == 2
    assert len(list(mine.predict(numbers(4)))) == 4
    x = tf.TensorSpec([None], tf.float32, "x")
    receiver_fn = est.export.build_raw_serving_input_receiver_fn({"x": x})

    def export_model_fn(features, labels, mode, params):
        return Model()(features["x"], labels, mode)

    exporting = mine.with_model_fn(export_model_fn)
    assert exporting.export_saved_model(str(tmp_path / "export"), receiver_fn)


@BASES
@pytest.mark.parametrize("member", MEMBERS)
def test_overriding_a_member_is_an_error_that_names_it(tmp_path, base, member):
    mine = type("Mine", (base,), {member: lambda self, *args, **kwargs: None})
    with pytest.raises(ValueError, match=rf"Mine overrides {member} of {base.__name__}\."):
        mine(Model(), str(tmp_path))


@BASES
def test_all_overridden_members_are_named(tmp_path, base):
    mine = type("Mine", (base,), {"train": None, "evaluate": None, "other": None})
    with pytest.raises(ValueError, match="Mine overrides evaluate, train of"):
        mine(Model(), str(tmp_path))


@BASES
def test_model_fn_and_latest_checkpoint_may_be_overridden(tmp_path, base):
    class Mine(base):
        def __init__(self, model_dir):
            super().__init__(self.model_fn, model_dir)

        def model_fn(self, features, labels, mode):
            return Model()(features, labels, mode)

        def latest_checkpoint(self):
            return "elsewhere"

    mine = Mine(str(tmp_path))
    mine.train(numbers(), steps=2)
    assert mine.latest_checkpoint() == "elsewhere"
    assert mine.evaluate(numbers(2))["global_step"] == 2


@BASES
def test_a_subclass_may_have_attributes_and_a_close_of_its_own(tmp_path, base):
    class Mine(base):
        def __init__(self, model_dir):
            super().__init__(Model(), model_dir)
            self._batches, self._warm, self._weights, self._export = 3, True, None, "path"
            self._checkpoint_dirs = self._event_dirs = []

        def close(self):
            self._warm = False

    with Mine(str(tmp_path)) as mine:
        mine.train(numbers(), steps=2)
        assert mine.evaluate(numbers(2))["global_step"] == 2
    assert not mine._warm


# What tf.estimator did not have.
NEW_MEMBERS = {n for c in est.tpu.TPUEstimator.__mro__ for n in vars(c) if not n.startswith("__")}
NEW_MEMBERS -= {
    *MEMBERS,
    *("experimental_export_all_saved_models", "latest_checkpoint", "model_fn"),
    *("_assert_members_are_not_overridden", "_call_model_fn", "_call_input_fn"),
    *("_create_and_assert_global_step", "_get_features_and_labels_from_input_fn"),
    "_get_features_from_input_fn",
}
NEW_MEMBERS = {name for name in NEW_MEMBERS if not name.startswith("_Estimator__")}
NEW_MEMBERS.remove("_make_input_batches")  # TPUEstimator overrides it.


@pytest.mark.each_value
@BASES
@pytest.mark.parametrize("is_between", [False, True])
def test_a_subclass_may_have_members_that_only_we_have(is_between, base, tmp_path):
    assert {"close", "explain", "train_result", "with_model_fn"} <= NEW_MEMBERS
    mine = type("Mine", (base,), dict.fromkeys(NEW_MEMBERS, "mine"))
    model = (type("Last", (mine,), {}) if is_between else mine)(Model(), str(tmp_path))
    assert model.train(numbers(4), steps=2) is model
    assert model.evaluate(numbers(2))["global_step"] == 2
    assert len(list(model.predict(numbers(2)))) == 2
    specs = est.TrainSpec(numbers(4)), est.EvalSpec(numbers(2), throttle_secs=0)
    assert est.train_and_evaluate(model, *specs).train_result.reason == "end of input"
    assert model.train_result == model.close == "mine"
    assert repr(model)
    base.close(model)


def test_names_of_a_class_of_ours_are_safe_from_an_attribute(tmp_path):
    class Mine(est.Estimator):
        def train(self, *args, **kwargs):
            self._train_result = self._trained_on = "mine"
            return super().train(*args, **kwargs)

        _assert_members_are_not_overridden = staticmethod(lambda model: None)

    model = Mine(Model(), str(tmp_path)).train(numbers(), steps=2)
    assert model._train_result == model._trained_on == "mine"
    assert model.train_result.global_step == 2


@BASES
def test_a_subclass_that_insists_overrides_the_check(tmp_path, base):
    class Mine(base):
        def _assert_members_are_not_overridden(self):
            pass

        def train(self, input_fn):
            return super().train(input_fn, steps=3)

    assert Mine(Model(), str(tmp_path)).train(numbers()).train_result.global_step == 3


@BASES
@pytest.mark.parametrize("kind", [staticmethod, lambda function: function])
def test_the_check_may_be_a_staticmethod_of_one_argument(tmp_path, base, kind):
    checked = []

    class Mine(base):
        @kind
        def _assert_members_are_not_overridden(self):
            checked.append(self)

        def evaluate(self, *args, **kwargs):
            return {**super().evaluate(*args, **kwargs), "mine": 1}

    mine = Mine(Model(), str(tmp_path))
    assert checked == [mine]
    assert mine.train(numbers(), steps=1).evaluate(numbers(2))["mine"] == 1


class Delegating(est.Estimator):
    """Has another estimator of the same directory train."""

    _assert_members_are_not_overridden = staticmethod(lambda model: None)
    returned = "inner"

    def __init__(self, model_dir):
        self.inner = est.Estimator(Model(), model_dir)
        super().__init__(Model(), model_dir)

    def train(self, *args, **kwargs):
        self.inner.train(*args, **kwargs)
        return {"inner": self.inner, "self": self, "nothing": None}[self.returned]


class Calling(est.Estimator):
    """Trains in its own way, by the train of its base."""

    def _assert_members_are_not_overridden(self):
        pass

    def __init__(self, model_dir):
        super().__init__(Model(), model_dir)

    def train(self, input_fn, **kwargs):
        return super().train(input_fn, **kwargs)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("kind", "returned"),
    [(Delegating, "inner"), (Delegating, "self"), (Delegating, "nothing"), (Calling, None)],
)
@pytest.mark.parametrize("max_steps", [4, 99])
def test_a_train_that_delegates_works_in_train_and_evaluate(kind, returned, max_steps, tmp_path):
    mine = kind(str(tmp_path))
    mine.returned = returned
    evaluated = est.train_and_evaluate(
        mine,
        est.TrainSpec(numbers(6), max_steps=max_steps),
        est.EvalSpec(numbers(3), throttle_secs=0),
    )
    step = min(6, max_steps)
    assert evaluated.metrics["global_step"] == step
    assert evaluated.train_result.global_step == step
    assert evaluated.train_result.reason == ("max_steps" if max_steps == 4 else "end of input")
    mine.close()


@BASES
def test_a_class_between_is_not_looked_at(tmp_path, base):
    class Between(base):
        def train(self, input_fn):
            return super().train(input_fn, steps=3)

    class Mine(Between):
        pass

    assert Mine(Model(), str(tmp_path)).train(numbers()).train_result.global_step == 3
