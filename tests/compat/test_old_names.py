"""The functions of tensorflow_estimator's modules that libraries built on it call."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests import legacy_keras


@pytest.fixture(autouse=True)
def _installed():
    est.install()
    yield
    est.uninstall()


@pytest.mark.parametrize("has_labels", [True, False])
@pytest.mark.parametrize("is_dataset", [True, False])
def test_an_input_fn_result_is_read_in_a_session(is_dataset, has_labels):
    from tensorflow_estimator.python.estimator import util

    x, y = np.arange(3.0), np.arange(3)
    data = ({"x": x}, y) if has_labels else {"x": x}
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(data).batch(3)
        iterator = tf.compat.v1.data.make_one_shot_iterator(dataset)
        result = dataset if is_dataset else iterator.get_next()
        features, labels, hooks = util.parse_input_fn_result(result)
        fetches = [features["x"], labels if has_labels else tf.no_op()]
        with tf.compat.v1.train.MonitoredSession(hooks=hooks) as session:
            got_x, got_y = session.run(fetches)
    np.testing.assert_array_equal(got_x, x)
    assert not has_labels or got_y.tolist() == [0, 1, 2]
    assert (labels is None) == (not has_labels)
    assert len(hooks) == is_dataset


def test_an_input_fn_result_of_three_values_is_an_error():
    from tensorflow_estimator.python.estimator import util

    with pytest.raises(ValueError, match="tuples of 3 values"):
        util.parse_input_fn_result((1, 2, 3))


def test_a_config_gets_the_directory(tmp_path):
    from tensorflow_estimator.python.estimator import estimator as estimator_lib

    overwrite = estimator_lib.maybe_overwrite_model_dir_and_session_config
    config = est.RunConfig(tf_random_seed=7)
    assert overwrite(None, str(tmp_path)).model_dir == str(tmp_path)
    assert overwrite(config, str(tmp_path)).tf_random_seed == 7
    new = overwrite(config, None).model_dir
    assert tf.io.gfile.isdir(new)
    assert overwrite(config.replace(model_dir=new), None).model_dir == new
    with pytest.raises(ValueError, match="differ"):
        overwrite(config.replace(model_dir=new), str(tmp_path))
    with pytest.raises(TypeError, match="`config`"):
        overwrite({}, None)


def test_the_default_config_of_sessions_is_that_of_2_15():
    from tensorflow_estimator.python.estimator import run_config

    config = run_config.get_default_session_config()
    options = config.graph_options.rewrite_options
    assert (config.allow_soft_placement, options.meta_optimizer_iterations) == (True, options.ONE)
    config.allow_soft_placement = False
    assert run_config.get_default_session_config().allow_soft_placement


def test_keras_optimizers_are_made_by_name():
    from tensorflow_estimator.python.estimator.canned import optimizers

    for name in ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD"):
        made = optimizers.get_optimizer_instance_v2(name, learning_rate=0.25)
        assert type(made).__name__ == name.replace("Prop", "prop")
        assert float(np.asarray(made.learning_rate)) == 0.25
        assert optimizers.get_optimizer_instance_v2(lambda made=made: made) is made
    default = tf.keras.optimizers.Adam().learning_rate
    assert optimizers.get_optimizer_instance_v2("Adam").learning_rate == default
    with pytest.raises(ValueError, match="`opt` .'Sgd'. is unknown"):
        optimizers.get_optimizer_instance_v2("Sgd")
    with pytest.raises(TypeError, match="`opt` .7. must be an optimizer"):
        optimizers.get_optimizer_instance_v2(7)


if legacy_keras.IS_LEGACY:

    def test_tf_keras_optimizers_are_those_of_2_15():
        from tensorflow_estimator.python.estimator.canned import optimizers

        made = optimizers.get_optimizer_instance_v2("SGD", 0.1)
        assert isinstance(made, tf.keras.optimizers.legacy.SGD)

else:

    def test_optimizers_of_tf_keras_in_a_process_of_their_own():
        legacy_keras.run_tests(__file__, "tf_keras_optimizers_are")


def test_a_head_of_v1_has_a_base_class():
    from tensorflow.python.estimator.canned import head as head_lib

    class Mine(head_lib._Head):
        def create_loss(self, features, mode, logits, labels):
            return head_lib.LossSpec(1.0, [2.0], weights=3.0, processed_labels=labels)

    spec = Mine().create_loss({}, est.ModeKeys.TRAIN, [0.5], labels=[4])
    assert spec == (1.0, [2.0], 3.0, [4])


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_a_tpu_estimator_takes_the_version_of_exports(version, tmp_path):
    from tensorflow_estimator.python.estimator.tpu import tpu_estimator

    config = tpu_estimator.RunConfig(model_dir=str(tmp_path))
    version = tpu_estimator.ExportSavedModelApiVersion[version]
    tpu_estimator.TPUEstimator(
        lambda features: None,
        config=config,
        use_tpu=False,
        train_batch_size=8,
        export_saved_model_api_version=version,
    )


def test_what_is_not_provided_can_be_imported_and_derived_from_but_not_used():
    from tensorflow_estimator.python.estimator.canned import head as head_lib

    class Mine(head_lib._MultiClassHeadWithSoftmaxCrossEntropyLoss):
        pass

    with pytest.raises(NotImplementedError, match="_all_classes is not provided .* Use the heads"):
        head_lib._all_classes([1.0], 2)
    with pytest.raises(NotImplementedError, match="_MultiClassHeadWith.* is not provided"):
        Mine(n_classes=3)
    assert head_lib._CLASSIFY_SERVING_KEY == "classification"


def test_the_old_modules_beside_those_of_tpus_are_there_until_the_end():
    from tensorflow.python import tpu
    from tensorflow.python.tpu import tpu_config, tpu_estimator

    assert tpu_config.TPUConfig is est.tpu.TPUConfig
    assert tpu_estimator.TPUEstimator is est.tpu.TPUEstimator
    est.uninstall()
    assert not hasattr(tpu, "tpu_config")
    with pytest.raises(ImportError, match="tpu_config"):
        from tensorflow.python.tpu import tpu_config


def test_a_receiver_function_is_made_of_an_input_fn():
    from tensorflow_estimator.python.estimator.export import export

    def input_fn(size):
        data = {"x": np.zeros([4, size], np.float32)}, np.zeros([4], np.int64)
        return tf.data.Dataset.from_tensor_slices(data).batch(2)

    make = export.build_supervised_input_receiver_fn_from_input_fn(input_fn, size=3)
    with tf.Graph().as_default():
        receiver = make()
        assert (receiver.features["x"].shape[1], receiver.labels.dtype) == (3, tf.int64)
        assert set(receiver.receiver_tensors) == {"x", "label"}
    assert export.UnsupervisedInputReceiver({}, {}).receiver_tensors == {}
