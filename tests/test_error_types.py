"""Programs catch errors by the types that tf.estimator's had; some errors here are of two."""

import copy
import pickle

import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint.errors import CheckpointError
from estimator.config.checks import WrongTypeError
from tests.toy import Model, numbers


def two_variables(features, labels, mode):
    spec = Model()(features, labels, mode)
    tf.compat.v1.get_variable("other", [3])
    return spec


def other_shape(features, labels, mode):
    del features, labels
    w = tf.compat.v1.get_variable("w", [2])
    step = tf.compat.v1.train.get_global_step()
    loss = tf.reduce_sum(w)
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return est.EstimatorSpec(mode, predictions=w, loss=loss, train_op=train_op)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    with est.Estimator(Model(), tmp_path_factory.mktemp("model")) as model:
        yield model.train(numbers(), steps=1)


@pytest.mark.parametrize("model_fn", [two_variables, other_shape])
@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_a_checkpoint_that_does_not_fit_is_tensorflows_error_and_a_wrong_value(
    trained, model_fn, verb
):
    with est.Estimator(model_fn, trained.model_dir) as model:
        for error in (ValueError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
            with pytest.raises(error, match="is another model's"):
                getattr(model, verb)(numbers(3), steps=1)


def test_a_variable_and_a_warm_start_that_are_not_there_are_likewise(trained, tmp_path):
    with est.Estimator(Model(), warm_start_from=str(tmp_path / "nothing")) as model:
        for error in (ValueError, tf.errors.NotFoundError):
            with pytest.raises(error, match="`name` .'v'. is unknown. Use one of"):
                trained.get_variable_value("v")
            with pytest.raises(error, match="`warm_start_from` .* does not exist"):
                model.train(numbers(), steps=1)


def test_an_error_of_a_checkpoint_can_be_copied():
    error = CheckpointError("It lacks a variable.")
    for copied in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(copied), str(copied)) == (CheckpointError, "It lacks a variable.")


@pytest.mark.parametrize(
    "call",
    [
        lambda model: est.Estimator(None),
        lambda model: est.Estimator(Model(), config={"model_dir": "x"}),
        lambda model: est.Estimator(Model(), warm_start_from=3),
        lambda model: est.RunConfig(tf_random_seed=1.5),
        lambda model: est.RunConfig(session_config={}),
        lambda model: est.RunConfig(experimental_max_worker_delay_secs=1.5),
        lambda model: est.RunConfig(device_fn=3),
        lambda model: est.TrainSpec(numbers(), max_steps="1"),
        lambda model: est.EvalSpec(numbers(), name=3),
        lambda model: est.EvalSpec(numbers(), exporters=3),
        lambda model: est.BestExporter(serving_input_receiver_fn=dict, compare_fn=None),
        lambda model: est.WarmStartSettings(None),
        lambda model: model.train(lambda wrong: None),
        lambda model: model.train(numbers(), hooks=[3]),
        lambda model: model.train(lambda: None, steps=1),
        lambda model: model.evaluate(numbers(), steps="1"),
        lambda model: est.Estimator(lambda features: None).train(numbers(), steps=1),
        lambda model: est.export.build_parsing_serving_input_receiver_fn(3),
        lambda model: est.export.build_raw_serving_input_receiver_fn({}, "1"),
        lambda model: est.classifier_parse_example_spec(3, "label"),
        lambda model: est.experimental.InMemoryEvaluatorHook(model, numbers(), every_n_iter=None),
        lambda model: est.tpu.TPUConfig(iterations_per_loop=1.5),
    ],
)
def test_a_value_of_the_wrong_type_is_of_both_types(trained, call):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(trained)
    if caught.type is not ValueError:
        assert caught.type is WrongTypeError
    assert issubclass(WrongTypeError, TypeError)
    assert issubclass(caught.type, ValueError)
