"""What BestExporter exports, where that differs."""

import os

import numpy as np
import pytest

from tests.contract.names import est, forever, mean_model_fn, tf, v1


def receiver_fn():
    x = v1.placeholder(tf.float32, [None])
    return est.export.ServingInputReceiver({"x": x}, x)


def best(**rest):
    return est.BestExporter(
        serving_input_receiver_fn=receiver_fn, event_file_pattern="no/*.such", **rest
    )


def exports(trained, exporter, path, *results, checkpoint=True):
    """How many of these evaluations' results an exporter exports."""
    where = os.fspath(path)
    model = trained.latest_checkpoint() if checkpoint else None
    made = [exporter.export(trained, where, model, result, False) for result in results]
    return [bool(one) for one in made]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = os.fspath(tmp_path_factory.mktemp("exported"))
    return est.Estimator(mean_model_fn, path).train(forever(), steps=1)


@pytest.mark.only_2_15("a best that was exported before a restart")
def test_a_restarted_exporter_exports_its_first_evaluation(trained, tmp_path):
    assert exports(trained, best(), tmp_path, {"loss": 1.0}) == [True]
    assert exports(trained, best(), tmp_path, {"loss": 2.0}) == [True]


@pytest.mark.only_here("a best that was exported before a restart")
def test_a_restarted_exporter_exports_what_is_better_than_its_best(trained, tmp_path):
    assert exports(trained, best(), tmp_path, {"loss": 1.0}) == [True]
    assert exports(trained, best(), tmp_path, {"loss": 2.0}, {"loss": 0.5}) == [False, True]


@pytest.mark.only_2_15("NaN as the best")
def test_nan_is_exported_first(trained, tmp_path):
    assert exports(trained, best(), tmp_path, {"loss": np.nan}, {"loss": 1.0}) == [True, False]


@pytest.mark.only_here("NaN as the best")
def test_nan_is_never_exported(trained, tmp_path):
    assert exports(trained, best(), tmp_path, {"loss": np.nan}, {"loss": 1.0}) == [False, True]


NOTHING = {"result": (True, None), "checkpoint": (False, {"loss": 1.0})}


@pytest.mark.only_2_15("None to an exporter")
@pytest.mark.parametrize("case", NOTHING)
def test_none_to_an_exporter_is_exported(trained, tmp_path, case):
    checkpoint, result = NOTHING[case]
    assert exports(trained, best(), tmp_path, result, checkpoint=checkpoint) == [True]


@pytest.mark.only_here("None to an exporter")
@pytest.mark.parametrize("case", NOTHING)
def test_none_to_an_exporter_is_a_value_error(trained, tmp_path, case):
    checkpoint, result = NOTHING[case]
    with pytest.raises(ValueError, match="None"):
        exports(trained, best(), tmp_path, result, checkpoint=checkpoint)


def with_missing_asset():
    return best(assets_extra={"words.txt": "/no/such/words.txt"})


@pytest.mark.only_2_15("a missing file of assets_extra")
def test_a_missing_asset_is_a_not_found_error(trained, tmp_path):
    with pytest.raises(tf.errors.NotFoundError):
        exports(trained, with_missing_asset(), tmp_path, {"loss": 1.0})


@pytest.mark.only_here("a missing file of assets_extra")
def test_a_missing_asset_is_a_value_error(trained, tmp_path):
    with pytest.raises(ValueError, match="words"):
        exports(trained, with_missing_asset(), tmp_path, {"loss": 1.0})
