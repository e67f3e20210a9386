"""`install` puts the library where old programs look for tf.estimator; `uninstall` removes it."""

import functools
import importlib
import logging
import sys
import types

import pytest
import tensorflow as tf

import estimator as est
from estimator._tf import api_modules
from estimator.compat.module_table import NAMES
from tests import toy

PACKAGES = ("tensorflow_estimator.python.estimator", "tensorflow.python.estimator")


@pytest.fixture(scope="module", autouse=True)
def _keras_is_imported():
    """The first `import tensorflow.keras` replaces `tf.keras`, installed or not."""
    importlib.import_module("tensorflow.keras")


@pytest.fixture
def installed():
    est.install()
    yield
    est.uninstall()


def old_modules():
    roots = (*PACKAGES, "tensorflow_estimator", "tensorflow.estimator")
    return {name for name in sys.modules if name.startswith(roots)}


@pytest.mark.usefixtures("installed")
def test_each_copy_of_the_api_has_the_names_of_its_version():
    v1, v2 = api_modules.api_modules(1), api_modules.api_modules(2)
    assert tf.compat.v1.compat.v1 in v1
    assert {id(tf), id(tf.compat.v2), id(tf.compat.v1.compat.v2)} <= set(map(id, v2))
    assert all(module.estimator is est.compat.v1 for module in v1)
    assert all(module.estimator is est for module in v2)
    assert tf.keras.estimator is tf.compat.v1.keras.estimator is est.keras


@pytest.mark.usefixtures("installed")
def test_modules_that_optimizers_import_are_there():
    from tensorflow.python.training import gen_training_ops, training_ops

    for module in (training_ops, gen_training_ops):
        assert callable(module.resource_apply_adam)


def test_names_that_tensorflow_has_moved_are_in_their_private_modules_again():
    from tensorflow.python import pywrap_tensorflow
    from tensorflow.python.framework import graph_util, ops
    from tensorflow.python.layers import normalization
    from tensorflow.python.ops import array_ops, control_flow_ops, variable_scope, variables
    from tensorflow.python.util import nest

    def count():
        modules = (array_ops, control_flow_ops, graph_util, nest, normalization, ops)
        return [set(vars(one)) for one in (*modules, pywrap_tensorflow, variable_scope, variables)]

    before = count()
    est.install()
    try:
        assert ops.Tensor is tf.Tensor
        assert control_flow_ops.while_loop is tf.compat.v1.while_loop
        assert graph_util.convert_variables_to_constants
        assert nest.is_sequence([1])
        assert not nest.is_sequence("x")
        assert pywrap_tensorflow.NewCheckpointReader is tf.compat.v1.train.NewCheckpointReader
        assert variables.VariableV1 is tf.compat.v1.Variable
        layer = normalization.BatchNormalization(name="norm")
        assert layer.name == "norm"
    finally:
        est.uninstall()
    assert count() == before


@pytest.mark.usefixtures("installed")
def test_names_are_imported_from_parts_of_tensorflow():
    import tensorflow.compat.v1 as old
    import tensorflow.estimator as v2
    from tensorflow.compat.v1 import estimator as v1
    from tensorflow.compat.v1.estimator.tpu import TPUEstimator
    from tensorflow.estimator import DNNClassifier
    from tensorflow.estimator.export import ServingInputReceiver
    from tensorflow.keras.estimator import model_to_estimator

    assert v2 is est
    assert v1 is old.estimator is est.compat.v1
    assert TPUEstimator is est.tpu.TPUEstimator
    assert DNNClassifier is est.DNNClassifier
    assert ServingInputReceiver is est.export.ServingInputReceiver
    assert model_to_estimator is est.keras.model_to_estimator


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_of_the_table_has_a_value(package):
    for name in NAMES:
        module = importlib.import_module(f"{package}.{name}")
        assert all(getattr(module, attribute) is not None for attribute in module.__all__)
        assert set(module.__all__) <= set(dir(module))


def function(a, b, c=3, *rest, d, **others):
    pass


class Callables:
    def method(self, a, b):
        pass

    def __call__(self, a):
        pass


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (function, ("a", "b", "c")),
        (functools.partial(function, 1), ("b", "c")),
        (functools.partial(function, b=2), ("a", "c")),
        (functools.partial(functools.partial(function, 1), c=2), ("b",)),
        (Callables().method, ("a", "b")),
        (Callables(), ("a",)),
    ],
)
def test_fn_args_are_those_that_2_15_says(fn, names):
    from tensorflow_estimator.python.estimator import util

    assert util.fn_args(fn) == names


@pytest.mark.usefixtures("installed")
def test_evaluations_are_read_as_by_2_15(tmp_path):
    from tensorflow_estimator.python.estimator import early_stopping

    trained = est.Estimator(toy.Model(), str(tmp_path))
    for _ in range(2):
        trained.train(toy.numbers(), steps=2)
        results = trained.evaluate(toy.numbers(3))
    found = early_stopping.read_eval_metrics(trained.eval_dir())
    assert list(found) == [2, 4]
    assert found[4] == {"loss": results["loss"], "mean": results["mean"]}


@pytest.mark.usefixtures("installed")
def test_the_step_of_a_directory_is_read_as_by_2_15(tmp_path):
    """The main programs of TPU models ask for it before they train."""
    from tensorflow_estimator.python.estimator import estimator as estimator_lib

    step_of = estimator_lib._load_global_step_from_checkpoint_dir
    assert step_of(str(tmp_path)) == 0
    est.Estimator(toy.Model(), str(tmp_path)).train(toy.numbers(), steps=2)
    assert step_of(str(tmp_path)) == 2


@pytest.mark.usefixtures("installed")
def test_the_modules_have_the_forms_of_both_versions():
    from tensorflow.python.estimator.tpu import tpu_config
    from tensorflow_estimator.python.estimator import estimator as estimator_lib
    from tensorflow_estimator.python.estimator import run_config
    from tensorflow_estimator.python.estimator.canned import dnn
    from tensorflow_estimator.python.estimator.canned.metric_keys import MetricKeys

    assert dnn.DNNClassifier is est.compat.v1.DNNClassifier
    assert dnn.DNNClassifierV2 is est.DNNClassifier
    assert tpu_config.RunConfig is est.tpu.RunConfig
    assert run_config.RunConfig is est.RunConfig
    assert MetricKeys.AUC == "auc"
    with pytest.raises(ValueError, match="overrides train of Estimator"):
        estimator_lib._assert_members_are_not_overridden(
            est.Estimator, object.__new__(type("Mine", (est.Estimator,), {"train": None}))
        )


V1_FORMS = {
    "baseline": [
        est.compat.v1.BaselineClassifier,
        est.compat.v1.BaselineEstimator,
        est.compat.v1.BaselineRegressor,
    ],
    "dnn": [
        est.compat.v1.DNNClassifier,
        est.compat.v1.DNNEstimator,
        est.compat.v1.DNNRegressor,
    ],
    "dnn_linear_combined": [
        est.compat.v1.DNNLinearCombinedClassifier,
        est.compat.v1.DNNLinearCombinedEstimator,
        est.compat.v1.DNNLinearCombinedRegressor,
    ],
    "linear": [
        est.compat.v1.LinearClassifier,
        est.compat.v1.LinearEstimator,
        est.compat.v1.LinearRegressor,
    ],
}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", V1_FORMS)
def test_ready_made_models_are_there_in_both_forms(name):
    module = importlib.import_module(f"tensorflow_estimator.python.estimator.canned.{name}")
    for model in V1_FORMS[name]:
        assert getattr(module, model.__name__) is model
        assert getattr(module, model.__name__ + "V2") is getattr(est, model.__name__)


@pytest.mark.usefixtures("installed")
def test_heads_and_optimizers_of_ready_made_models_are_made():
    from tensorflow.python.estimator.canned import head as head_lib
    from tensorflow.python.estimator.canned import optimizers

    head = head_lib._multi_class_head_with_softmax_cross_entropy_loss(3, name="h")
    labels, logits = [[0], [2]], [[9.0, 0.0, 0.0], [9.0, 0.0, 0.0]]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = optimizers.get_optimizer_instance("Ftrl", learning_rate=0.1)
        assert isinstance(made, tf.compat.v1.train.FtrlOptimizer)
        assert optimizers.get_optimizer_instance(lambda: made) is made
        assert optimizers.get_optimizer_instance(made) is made
        assert optimizers.get_optimizer_instance(lambda: made, 0.05) is made
        loss = head.create_estimator_spec({}, est.ModeKeys.EVAL, logits, labels).loss
        assert session.run(loss) == pytest.approx(9, abs=0.01)  # The sum, not the mean.
    assert head_lib._regression_head(label_dimension=2).logits_dimension == 2
    assert head_lib._binary_logistic_head_with_sigmoid_cross_entropy_loss().logits_dimension == 1
    with pytest.raises(ValueError, match="`opt` .'Sgd'. is unknown. Use one of .Adagrad"):
        optimizers.get_optimizer_instance("Sgd", 0.1)
    with pytest.raises(ValueError, match="`opt` .'Momentum'. is unknown."):
        optimizers.get_optimizer_instance("Momentum", 0.1)
    with pytest.raises(TypeError, match="`opt` .7. must be an optimizer, a function that makes"):
        optimizers.get_optimizer_instance(7)
    with pytest.raises(ValueError, match="`learning_rate` must be given if `opt` .'SGD'. is a nam"):
        optimizers.get_optimizer_instance("SGD")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "from tensorflow_estimator.python.estimator.estimator import Estmator",
            "estimator.Estmator is not provided .* Did you mean 'Estimator'",
        ),
        (
            "from tensorflow_estimator.python.estimator.head import sequential_head",
            "head.sequential_head is not provided by .* a subclass of estimator.Head",
        ),
        (
            "import tensorflow.python.estimator.canned.timeseries.math_utils",
            r"canned.timeseries is not provided .* Use a `model_fn`\.",
        ),
        (
            "from tensorflow_estimator.python.estimator.gc import Path",
            "gc.Path is not provided .* `exports_to_keep`",
        ),
        (
            "from tensorflow.python.estimator.training import _TrainingExecutor",
            "_TrainingExecutor is not provided .* estimator.train_and_evaluate",
        ),
    ],
)
def test_what_is_not_provided_is_an_import_error_with_the_way_out(code, message):
    with pytest.raises(ImportError, match=message):
        exec(code)


@pytest.mark.usefixtures("installed")
def test_an_attribute_that_is_not_provided_is_an_attribute_error_with_the_way_out():
    module = importlib.import_module("tensorflow_estimator.python.estimator.util")
    with pytest.raises(
        AttributeError, match="MultiHostDatasetInitializerHook is not provided .* not needed"
    ):
        _ = module.MultiHostDatasetInitializerHook
    assert not hasattr(module, "__wrapped__")


@pytest.mark.usefixtures("installed")
def test_a_hook_of_tf_data_resumes_the_input(tmp_path):
    seen = []

    def model_fn(features, mode):
        note = tf.py_function(lambda batch: seen.append(int(batch[0])), [features], [])
        step = tf.compat.v1.train.get_global_step()
        with tf.control_dependencies([note]):
            return est.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=step.assign_add(1))

    for steps in (3, 2):
        trainer = est.Estimator(model_fn, tmp_path)
        hook = tf.data.experimental.CheckpointInputPipelineHook(trainer, "warn")
        trainer.train(lambda: tf.data.Dataset.range(9).batch(1), hooks=[hook], steps=steps)
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("installed")
def test_a_hook_of_tf_data_needs_an_input_that_is_resumed(tmp_path):
    config = est.RunConfig(resume_input=False)
    trainer = est.Estimator(toy.ids_model_fn, tmp_path, config)
    with pytest.raises(ValueError, match="`resume_input=False`. Leave one of them out"):
        tf.compat.v1.data.experimental.CheckpointInputPipelineHook(trainer)
    with pytest.raises(TypeError, match="must be an estimator.Estimator"):
        tf.data.experimental.CheckpointInputPipelineHook("model")


def test_uninstall_leaves_nothing_and_both_may_be_called_twice():
    finders, modules = list(sys.meta_path), old_modules()
    keras = dict(vars(tf.keras))
    est.install()
    est.install()
    importlib.import_module("tensorflow.python.estimator.canned.dnn")
    _ = [module.estimator for n in (1, 2) for module in api_modules.api_modules(n)]
    assert old_modules() > modules
    est.uninstall()
    est.uninstall()
    assert sys.meta_path == finders
    assert old_modules() == modules
    assert dict(vars(tf.keras)) == keras
    for module in [*api_modules.api_modules(1), *api_modules.api_modules(2)]:
        assert not hasattr(module, "estimator")
        assert not hasattr(module.data.experimental, "CheckpointInputPipelineHook")
    with pytest.raises(ImportError):
        importlib.import_module("tensorflow_estimator")
    with pytest.raises(ImportError):
        importlib.import_module("tensorflow.python.estimator")


def test_a_real_package_is_hidden_with_a_warning_and_comes_back(tmp_path, monkeypatch, caplog):
    (tmp_path / "tensorflow_estimator").mkdir()
    (tmp_path / "tensorflow_estimator" / "__init__.py").write_text("IS_REAL = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    real = importlib.import_module("tensorflow_estimator")
    with caplog.at_level(logging.WARNING, "estimator"):
        est.install()
    assert f"hides the package tensorflow_estimator in {tmp_path}" in caplog.text
    assert not hasattr(importlib.import_module("tensorflow_estimator"), "IS_REAL")
    est.uninstall()
    assert sys.modules.pop("tensorflow_estimator") is real


def test_an_attribute_that_was_there_is_restored():
    module = types.ModuleType("module")
    module.estimator = "before"
    with api_modules.supplied(module, "estimator", "meanwhile"):
        assert module.estimator == "meanwhile"
    assert module.estimator == "before"
