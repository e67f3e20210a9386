"""WarmStartSettings, VocabInfo and `warm_start_from`."""

import os

import numpy as np
import pytest

from tests.contract.names import est, forever, mean_model_fn, tf, v1, v1est, weight_after

W3 = weight_after(3, 1.0)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("vars_to_warm_start", ".*"),
        ("var_name_to_vocab_info", {}),
        ("var_name_to_prev_var_name", {}),
    ],
)
def test_default_of_the_settings(name, default):
    assert getattr(est.WarmStartSettings("/a"), name) == default


def test_settings_are_a_named_tuple():
    settings = est.WarmStartSettings("/a", ["b"], None, {"c": "d"})
    assert settings._fields == (
        "ckpt_to_initialize_from",
        "vars_to_warm_start",
        "var_name_to_vocab_info",
        "var_name_to_prev_var_name",
    )
    path, names, *rest = settings
    assert (path, list(names), rest) == ("/a", ["b"], [{}, {"c": "d"}])


@pytest.mark.parametrize("path", [None, ""], ids=["None", "empty"])
def test_settings_need_a_checkpoint(path):
    with pytest.raises(ValueError):
        est.WarmStartSettings(path)


def test_vocab_info_is_a_named_tuple():
    info = est.VocabInfo("new", 3, 1, "old")
    assert info._fields == (
        "new_vocab",
        "new_vocab_size",
        "num_oov_buckets",
        "old_vocab",
        "old_vocab_size",
        "backup_initializer",
        "axis",
    )


@pytest.mark.parametrize(
    ("name", "default"), [("old_vocab_size", -1), ("backup_initializer", None), ("axis", 0)]
)
def test_default_of_vocab_info(name, default):
    assert getattr(est.VocabInfo("new", 3, 1, "old"), name) == default


@pytest.mark.parametrize("axis", [2, -1, "0"], ids=str)
def test_wrong_axis_is_a_value_error(axis):
    with pytest.raises(ValueError):
        est.VocabInfo("new", 3, 1, "old", axis=axis)


# --- Warm starting -------------------------------------------------------------------------------


def other_model_fn(features, labels, mode):
    """Two weights and a counter; trains nothing, so that the first values are what is saved."""
    names = {"w": 5.0, "v": 7.0}
    weights = {
        name: v1.get_variable(name, [], initializer=v1.constant_initializer(value))
        for name, value in names.items()
    }
    counter = v1.get_variable(
        "counter", [], initializer=v1.constant_initializer(9.0), trainable=False
    )
    loss = weights["w"] + weights["v"] + counter
    train_op = v1.assign_add(v1.train.get_global_step(), 1)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def one_step(features, labels, mode):
    """`mean_model_fn` with a counter that is not trained."""
    v1.get_variable("counter", [], initializer=v1.constant_initializer(4.0), trainable=False)
    v1.get_variable("v", [], initializer=v1.constant_initializer(6.0))
    return mean_model_fn(features, labels, mode)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    path = os.fspath(tmp_path_factory.mktemp("old"))
    config = est.RunConfig(save_checkpoints_steps=1, keep_checkpoint_max=None)
    return est.Estimator(one_step, path, config).train(forever(), steps=3)


def values(tmp_path, warm_start_from):
    made = est.Estimator(other_model_fn, os.fspath(tmp_path), warm_start_from=warm_start_from)
    made.train(forever(), steps=1)
    return {name: float(made.get_variable_value(name)) for name in ("w", "v", "counter")}


def test_a_directory_gives_its_newest_values(tmp_path, old):
    assert values(tmp_path, old.model_dir)["w"] == pytest.approx(W3)


def test_a_checkpoint_gives_its_values(tmp_path, old):
    path = os.path.join(old.model_dir, "model.ckpt-1")
    assert values(tmp_path, path)["w"] == pytest.approx(weight_after(1, 1.0))


def test_variables_that_are_not_trained_keep_their_initial_values(tmp_path, old):
    assert values(tmp_path, old.model_dir)["counter"] == 9


def test_global_step_starts_at_zero(tmp_path, old):
    made = est.Estimator(other_model_fn, os.fspath(tmp_path), warm_start_from=old.model_dir)
    assert made.train(forever(), steps=1).get_variable_value("global_step") == 1


@pytest.mark.parametrize(
    ("pattern", "w", "v"),
    [("w", W3, 7), ("v", 5, 6), (".*[wv]", W3, 6), (["w", "v"], W3, 6)],
    ids=str,
)
def test_a_pattern_chooses(tmp_path, old, pattern, w, v):
    found = values(tmp_path, est.WarmStartSettings(old.model_dir, pattern))
    assert (found["w"], found["v"]) == (pytest.approx(w), pytest.approx(v))


@pytest.mark.only_2_15("a warm start of nothing")
def test_none_without_vocabularies_chooses_nothing(tmp_path, old):
    settings = est.WarmStartSettings(old.model_dir, vars_to_warm_start=None)
    assert values(tmp_path, settings) == values(tmp_path / "cold", None)


@pytest.mark.only_here("a warm start of nothing")
def test_none_without_vocabularies_is_a_value_error(old):
    with pytest.raises(ValueError, match=r"`vars_to_warm_start` \(None\)"):
        est.WarmStartSettings(old.model_dir, vars_to_warm_start=None)


@pytest.mark.only_2_15("a warm start of a name that is not there")
def test_a_name_in_a_list_that_matches_nothing_is_passed_over(tmp_path, old):
    assert values(tmp_path, est.WarmStartSettings(old.model_dir, ["v", "nothing"]))["v"] == 6


@pytest.mark.only_here("a warm start of a name that is not there")
def test_a_name_in_a_list_that_matches_nothing_is_a_value_error(tmp_path, old):
    with pytest.raises(ValueError, match="`vars_to_warm_start` \\('nothing'\\) matches"):
        values(tmp_path, est.WarmStartSettings(old.model_dir, ["v", "nothing"]))


def test_names_in_a_list_choose_others_than_trained_ones(tmp_path, old):
    settings = est.WarmStartSettings(old.model_dir, ["counter"])
    assert values(tmp_path, settings) == {"w": 5, "v": 7, "counter": 4}


def test_an_old_name(tmp_path, old):
    settings = est.WarmStartSettings(old.model_dir, "w", var_name_to_prev_var_name={"w": "counter"})
    assert values(tmp_path, settings)["w"] == 4


def with_an_init_op(features, labels, mode):
    spec = other_model_fn(features, labels, mode)
    init_op = v1.global_variables_initializer()
    return spec._replace(scaffold=v1.train.Scaffold(init_op=init_op))


@pytest.mark.only_2_15("a warm start beside an init_op")
def test_the_init_op_of_a_scaffold_undoes_a_warm_start(tmp_path, old):
    made = est.Estimator(with_an_init_op, os.fspath(tmp_path), warm_start_from=old.model_dir)
    assert made.train(forever(), steps=1).get_variable_value("w") != pytest.approx(W3)


@pytest.mark.only_here("a warm start beside an init_op")
def test_a_warm_start_comes_after_the_init_op_of_a_scaffold(tmp_path, old):
    made = est.Estimator(with_an_init_op, os.fspath(tmp_path), warm_start_from=old.model_dir)
    assert made.train(forever(), steps=1).get_variable_value("w") == pytest.approx(W3)


def test_a_checkpoint_in_model_dir_wins(tmp_path, old):
    assert values(tmp_path, None)["w"] == 5
    made = est.Estimator(other_model_fn, os.fspath(tmp_path), warm_start_from=old.model_dir)
    made.train(forever(), steps=1)
    assert made.get_variable_value("w") == 5


@pytest.mark.parametrize("missing", ["directory", "checkpoint"])
def test_what_is_not_there_is_an_error(tmp_path, missing):
    path = "/nowhere" if missing == "directory" else "/nowhere/model.ckpt-1"
    with pytest.raises((ValueError, tf.errors.OpError)):
        values(tmp_path, path)


def test_a_missing_variable_is_an_error(tmp_path, old):
    settings = est.WarmStartSettings(
        old.model_dir, "w", var_name_to_prev_var_name={"w": "nonsense"}
    )
    with pytest.raises((ValueError, tf.errors.OpError)):
        values(tmp_path, settings)


def embedding_model_fn(features, labels, mode, params):
    rows = params["rows"]
    table = v1.get_variable("table", [len(rows), 1], initializer=v1.constant_initializer(rows))
    train_op = v1.assign_add(v1.train.get_global_step(), 1)
    return est.EstimatorSpec(mode, loss=tf.reduce_sum(table), train_op=train_op)


@pytest.mark.parametrize("backup", [None, "ones"])
def test_rows_follow_their_words(tmp_path, backup):
    (tmp_path / "old.txt").write_text("a\nb\nc\n")
    (tmp_path / "new.txt").write_text("c\nx\na\n")
    before = est.Estimator(
        embedding_model_fn, os.fspath(tmp_path / "old"), params={"rows": [1.0, 2.0, 3.0]}
    ).train(forever(), steps=1)
    info = est.VocabInfo(
        new_vocab=os.fspath(tmp_path / "new.txt"),
        new_vocab_size=3,
        num_oov_buckets=0,
        old_vocab=os.fspath(tmp_path / "old.txt"),
        backup_initializer=v1.ones_initializer() if backup else None,
    )
    settings = est.WarmStartSettings(before.model_dir, var_name_to_vocab_info={"table": info})
    after = est.Estimator(
        embedding_model_fn,
        os.fspath(tmp_path / "new"),
        params={"rows": [7.0, 7.0, 7.0]},
        warm_start_from=settings,
    ).train(forever(), steps=1)
    expected = [[3], [1 if backup else 0], [1]]
    np.testing.assert_array_equal(after.get_variable_value("table"), expected)


def test_a_name_does_not_choose_the_slots_of_v1_models(tmp_path):
    def train(name, **kwargs):
        columns = [tf.feature_column.numeric_column("x")]
        model = v1est.DNNRegressor([2], columns, os.fspath(tmp_path / name), **kwargs)
        return model.train(
            lambda: tf.data.Dataset.from_tensors(({"x": [[1.0]]}, [[2.0]])).repeat(), steps=3
        )

    name = "dnn/hiddenlayer_0/kernel"
    settings = est.WarmStartSettings(train("old").model_dir, vars_to_warm_start=[name])
    start = os.path.join(train("new", warm_start_from=settings).model_dir, "model.ckpt-0")
    slots = {
        other: tf.train.load_variable(start, other)
        for other, _ in tf.train.list_variables(start)
        if other.startswith(name + "/")
    }
    assert len(slots) == 1  # Adagrad's sum of squares, which begins at 0.1.
    for value in slots.values():
        np.testing.assert_allclose(value, 0.1)
