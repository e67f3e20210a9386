import dataclasses
import pathlib

import pytest
import tensorflow as tf

import estimator as est
from estimator.config.warm_start_settings import checked_warm_start

V1 = tf.compat.v1
INFO = est.VocabInfo("new.txt", 5, 2, "old.txt")


def test_the_defaults_choose_all_that_is_trainable():
    assert list(est.WarmStartSettings("/old")) == ["/old", ".*", {}, {}]


def test_the_defaults_of_a_vocabulary_are_all_old_entries_zeros_and_rows():
    assert (INFO.old_vocab_size, INFO.backup_initializer, INFO.axis) == (-1, None, 0)


@pytest.mark.parametrize("path", ["/old", b"/old", pathlib.Path("/old")])
def test_a_path_stands_for_settings(path):
    assert checked_warm_start(path) == est.WarmStartSettings("/old")


def test_settings_are_frozen_and_replaced():
    settings = est.WarmStartSettings("/old", var_name_to_prev_var_name={"b": "a"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.ckpt_to_initialize_from = "/other"
    for replace in (settings.replace, settings._replace):
        assert list(replace(vars_to_warm_start=["b"])) == ["/old", ("b",), {}, {"b": "a"}]
    with pytest.raises(ValueError, match="not a field of WarmStartSettings. Did you mean 'vars_to"):
        settings.replace(var_to_warm_start=".*")
    with pytest.raises(dataclasses.FrozenInstanceError):
        INFO.axis = 1
    assert INFO.replace(axis=1)._replace(num_oov_buckets=0).axis == 1


def test_changing_what_settings_were_made_of_does_not_change_them():
    names, chosen = {"b": "a"}, ["b"]
    settings = est.WarmStartSettings("/old", chosen, None, names)
    names["c"] = "a"
    chosen.append("c")
    assert list(settings)[1:] == [("b",), {}, {"b": "a"}]


def test_the_vocabulary_of_tensorflow_itself_is_taken():
    theirs = V1.train.VocabInfo("new.txt", 5, 2, "old.txt", axis=1)
    settings = est.WarmStartSettings("/old", var_name_to_vocab_info={"words": theirs})
    assert settings.var_name_to_vocab_info == {"words": INFO.replace(axis=1)}


def test_they_show_what_differs_from_the_default():
    assert repr(est.WarmStartSettings("/old")) == (
        "WarmStartSettings(ckpt_to_initialize_from='/old')"
    )
    assert repr(INFO) == (
        "VocabInfo(new_vocab='new.txt', new_vocab_size=5, num_oov_buckets=2, old_vocab='old.txt')"
    )
