"""`estimator.compat.v1` is what `tf.compat.v1.estimator` was."""

import os

import pytest
import tensorflow as tf

import estimator as est
from tests.old_versions import writes_texts
from tests.toy import Model, numbers


def test_its_names_are_those_of_the_library():
    models = ("Baseline", "DNN", "Linear")  # Ready-made ones, which have a form of their own.
    for name in est.compat.v1.__all__:
        if name.startswith(models):
            assert issubclass(getattr(est.compat.v1, name), getattr(est, name))
        else:
            assert getattr(est.compat.v1, name) is getattr(est, name)
    others = set(est.__all__) - set(est.compat.v1.__all__)
    assert others == {
        "Cluster",
        "CrossShardOptimizer",
        "TrainResult",
        "compat",
        "install",
        "keras",  # tf.keras.estimator had it.
        "make_predictor",
        "parse_tf_config",
        "uninstall",
    }


@writes_texts
@pytest.mark.parametrize("strips", [False, True])
def test_export_savedmodel_takes_the_arguments_that_it_took(tmp_path, strips):
    def model_fn(features, labels, mode):
        return Model()(features["x"] if isinstance(features, dict) else features, labels, mode)

    trained = est.compat.v1.Estimator(model_fn, str(tmp_path / "model"))
    trained.train(numbers(), steps=2)
    first = trained.latest_checkpoint()
    trained.train(numbers(), steps=2)
    (tmp_path / "notes.txt").write_text("A file.")
    x = tf.TensorSpec([None], tf.float32, "x")
    receiver_fn = est.compat.v1.export.build_raw_serving_input_receiver_fn({"x": x})
    extra = {"notes.txt": str(tmp_path / "notes.txt")}
    path = trained.export_savedmodel(
        str(tmp_path / "export"), receiver_fn, extra, True, first, strips
    )
    assert {"saved_model.pbtxt", "assets.extra"} <= set(os.listdir(path.decode()))
    serve = tf.saved_model.load(path.decode()).signatures["serving_default"]
    w = tf.train.load_variable(first, "w")
    assert serve(x=tf.constant([2.0]))["output"].numpy().tolist() == [2 * w]
