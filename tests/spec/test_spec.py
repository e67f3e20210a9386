import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

from estimator.export import PredictOutput
from estimator.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

v1 = tf.compat.v1
SPECS = (EstimatorSpec, TPUEstimatorSpec)
TRAIN, EVAL, PREDICT = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


class Hook(v1.train.SessionRunHook):
    pass


def valid(mode):
    """The least that each mode needs."""
    return {
        TRAIN: {"loss": tf.constant(1.0), "train_op": tf.no_op()},
        EVAL: {"loss": tf.constant(1.0)},
        PREDICT: {"predictions": tf.constant([1.0])},
    }[mode]


def test_the_modes_are_those_of_tf_estimator():
    assert (TRAIN, EVAL, PREDICT) == ("train", "eval", "infer")


@pytest.mark.parametrize("spec_type", SPECS)
@pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
def test_what_is_not_given_is_none_or_empty(spec_type, mode):
    spec = spec_type(mode, **valid(mode))
    assert spec.mode == mode
    assert spec.training_hooks == spec.evaluation_hooks == spec.prediction_hooks == ()
    if mode != PREDICT:
        assert spec.predictions == {}
        assert spec.export_outputs is None
    if spec_type is EstimatorSpec:
        assert spec.eval_metric_ops == {}


@pytest.mark.parametrize("spec_type", SPECS)
def test_what_is_predicted_is_served_by_default(spec_type):
    predictions = {"p": tf.constant([1.0])}
    spec = spec_type(PREDICT, predictions=predictions)
    assert list(spec.export_outputs) == ["serving_default"]
    assert spec.export_outputs["serving_default"].outputs == predictions
    # A program may go on with what the spec has made.
    spec.export_outputs["other"] = PredictOutput(predictions)
    assert list(spec.replace(predictions=tf.constant([2.0])).export_outputs) == [
        "serving_default",
        "other",
    ]


@pytest.mark.parametrize("spec_type", SPECS)
def test_a_single_output_is_the_default_and_of_several_one_must_be(spec_type):
    output = PredictOutput(tf.constant([1.0]))
    predictions = tf.constant([1.0])
    given = {"a": output}
    assert spec_type(PREDICT, predictions, export_outputs=given).export_outputs is given
    assert given == {"a": output, "serving_default": output}
    with pytest.raises(ValueError, match="one of several must be 'serving_default'"):
        spec_type(PREDICT, predictions, export_outputs={"a": output, "b": output})
    untouched = {"a": output, "b": output}
    loss = tf.constant(1.0)
    assert spec_type(EVAL, loss=loss, export_outputs=untouched).export_outputs is untouched


@pytest.mark.parametrize("spec_type", SPECS)
@pytest.mark.parametrize(
    ("mode", "argument"),
    [(TRAIN, "loss"), (TRAIN, "train_op"), (EVAL, "loss"), (PREDICT, "predictions")],
)
def test_what_the_mode_needs_must_be_there(spec_type, mode, argument):
    given = {name: value for name, value in valid(mode).items() if name != argument}
    with pytest.raises(ValueError, match=f"`{argument}` is missing: mode '{mode}' needs it"):
        spec_type(mode, **given)


@pytest.mark.parametrize("spec_type", SPECS)
@pytest.mark.parametrize("mode", [TRAIN, EVAL])
@pytest.mark.parametrize("shape", [[], [1], [1, 1], [None, 1], [1, None, 1], [None, None]])
def test_a_loss_of_one_number_becomes_a_scalar(spec_type, mode, shape):
    loss = v1.placeholder_with_default(np.full([1] * len(shape), 3.0), shape)
    spec = spec_type(mode, loss=loss, train_op=tf.no_op())
    assert spec.loss.shape == []
    with v1.Session() as session:
        assert session.run(spec.loss) == 3.0


def test_a_training_loss_of_unknown_length_must_turn_out_to_be_one_number():
    loss = v1.placeholder(tf.float32, [None])
    spec = EstimatorSpec(TRAIN, loss=loss, train_op=tf.no_op())
    assert spec.loss.shape == []
    with v1.Session() as session:
        assert session.run(spec.loss, {loss: [3.0]}) == 3.0
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(spec.loss, {loss: [3.0, 4.0]})


@pytest.mark.parametrize("spec_type", SPECS)
@pytest.mark.parametrize("shape", [[], [8], [None]])
def test_an_evaluation_loss_may_be_one_an_example(spec_type, shape):
    loss = v1.placeholder(tf.float32, shape)
    assert spec_type(EVAL, loss=loss).loss is loss


def test_a_loss_of_unknown_rank_is_left_alone():
    loss = v1.placeholder(tf.float32, None)
    assert EstimatorSpec(TRAIN, loss=loss, train_op=tf.no_op()).loss is loss


@pytest.mark.parametrize("spec_type", SPECS)
@pytest.mark.parametrize(
    ("mode", "shape", "rule"),
    [
        (TRAIN, [8], "must be one number. Reduce it with tf.reduce_mean"),
        (TRAIN, [2, None], "must be one number"),
        (EVAL, [8, 1], "must be one number, or a vector with one loss per example"),
    ],
)
def test_a_loss_of_too_high_a_rank_is_an_error(spec_type, mode, shape, rule):
    with pytest.raises(ValueError, match=f"`loss` .* has shape .* In mode '{mode}' it {rule}"):
        spec_type(mode, loss=v1.placeholder(tf.float32, shape), train_op=tf.no_op())


@pytest.mark.parametrize(
    "make_train_op",
    [
        tf.no_op,
        lambda: tf.constant(1),
        lambda: tf.Variable(1),
        lambda: keras.Variable(1.0),
        lambda: keras.optimizers.SGD(0.1).apply_gradients([(tf.constant(1.0), tf.Variable(1.0))]),
        v1.train.get_or_create_global_step,
    ],
)
def test_what_optimizers_return_is_a_train_op(make_train_op):
    train_op = make_train_op()
    assert EstimatorSpec(TRAIN, loss=tf.constant(1.0), train_op=train_op).train_op is train_op


def test_the_values_of_replicas_are_a_train_op():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    train_op = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(1))
    assert isinstance(train_op, tf.distribute.DistributedValues)
    assert EstimatorSpec(TRAIN, loss=tf.constant(1.0), train_op=train_op).train_op is train_op


@pytest.mark.parametrize("spec_type", SPECS)
@pytest.mark.parametrize(
    ("mode", "argument", "value", "message"),
    [
        (TRAIN, "loss", 1.0, "`loss` .1.0. must be a tensor"),
        (TRAIN, "train_op", lambda: None, "`train_op` .* must be an op"),
        (TRAIN, "train_op", [], "Combine several ops with tf.group"),
        (PREDICT, "predictions", [1.0], "`predictions` .* must be a tensor or a dict of tensors"),
        (PREDICT, "predictions", {"a": 1}, r"`predictions\['a'\]` .1. must be a tensor"),
        (PREDICT, "export_outputs", [1], "`export_outputs` .* must be a dict"),
        (PREDICT, "export_outputs", {"a": 1}, r"`export_outputs\['a'\]` .* an ExportOutput"),
        (TRAIN, "training_hooks", Hook(), "`training_hooks` .* must be a list of hooks"),
        (EVAL, "evaluation_hooks", 3, "`evaluation_hooks` .* must be a list of hooks"),
        (TRAIN, "training_hooks", [Hook], "`training_hooks` holds .*, which is not an instance of"),
        (EVAL, "evaluation_hooks", ["hook"], "`evaluation_hooks` holds 'hook'"),
        (PREDICT, "prediction_hooks", {"a": 1}, "`prediction_hooks` holds 'a'"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error(spec_type, mode, argument, value, message):
    with pytest.raises(TypeError, match=message):
        spec_type(mode, **{**valid(mode), argument: value})


@pytest.mark.parametrize("spec_type", SPECS)
@pytest.mark.parametrize("mode", [None, "predict", "TRAIN", 3])
def test_an_unknown_mode_is_an_error(spec_type, mode):
    with pytest.raises(ValueError, match="`mode` .* is unknown. Pass on the `mode`"):
        spec_type(mode, loss=tf.constant(1.0))


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([1], "`eval_metric_ops` .* must be a dict from name"),
        ({"a": 1}, r"`eval_metric_ops\['a'\]` .1. must be \(value tensor, update op\)"),
        ({"a": (1,)}, r"`eval_metric_ops\['a'\]` .* must be \(value tensor, update op\)"),
        ({"a": (1, 2)}, r"`eval_metric_ops\['a'\]` .1. must be made of tensors and ops"),
    ],
)
def test_metrics_of_the_wrong_form_are_an_error(metrics, message):
    with pytest.raises(TypeError, match=message):
        EstimatorSpec(EVAL, loss=tf.constant(1.0), eval_metric_ops=metrics)


def test_metrics_are_pairs_or_keras_metrics():
    keras_metric = keras.metrics.Mean()
    metrics = {
        "mean": v1.metrics.mean(tf.constant([1.0])),
        "op": (tf.constant(1.0), tf.no_op()),
        "many": ({"a": tf.constant(1.0)}, tf.no_op()),
        "keras": keras_metric,
    }
    spec = EstimatorSpec(EVAL, loss=tf.constant(1.0), eval_metric_ops=metrics)
    assert spec.eval_metric_ops == metrics


def test_without_a_scaffold_there_is_an_empty_one():
    scaffold = EstimatorSpec(EVAL, loss=tf.constant(1.0)).scaffold
    assert isinstance(scaffold, v1.train.Scaffold)
    assert (scaffold.saver, scaffold.init_op, scaffold.init_fn) == (None, None, None)


def test_a_scaffold_is_a_scaffold():
    with pytest.raises(TypeError, match="`scaffold` .* must be a tf.compat.v1.train.Scaffold"):
        EstimatorSpec(EVAL, loss=tf.constant(1.0), scaffold=v1.train.Scaffold)
    with pytest.raises(TypeError, match="`scaffold_fn` .* must be a function"):
        TPUEstimatorSpec(EVAL, loss=tf.constant(1.0), scaffold_fn=v1.train.Scaffold())


@pytest.mark.parametrize(
    ("mode", "argument", "wrap"),
    [
        (TRAIN, "loss", lambda x: x),
        (TRAIN, "train_op", lambda x: x),
        (TRAIN, "train_op", lambda x: x.op),
        (PREDICT, "predictions", lambda x: x),
        (PREDICT, "predictions", lambda x: {"a": x}),
        (EVAL, "eval_metric_ops", lambda x: {"a": (x, x)}),
    ],
)
def test_a_tensor_of_another_graph_is_an_error(mode, argument, wrap):
    with tf.Graph().as_default():
        value = wrap(tf.constant(1.0))
    with pytest.raises(ValueError, match=f"`{argument}.* is in another graph .* inside `model_fn`"):
        EstimatorSpec(mode, **{**valid(mode), argument: value})


def test_a_function_sees_the_graph_around_it_and_not_the_other_way_round():
    outer = tf.constant(1.0)
    leaked = []

    @tf.function
    def body():
        leaked.append(tf.constant(2.0))
        EstimatorSpec(EVAL, loss=outer, predictions=leaked[0])
        return outer

    body.get_concrete_function()
    with pytest.raises(ValueError, match="`loss` .* is in another graph"):
        EstimatorSpec(EVAL, loss=leaked[0])


@pytest.mark.parametrize("spec_type", SPECS)
def test_a_spec_is_frozen_and_replace_checks_again(spec_type):
    spec = spec_type(EVAL, loss=tf.constant(1.0))
    with pytest.raises(AttributeError):
        spec.loss = None
    other = spec.replace(loss=tf.constant([1.0, 2.0]))
    assert other.loss.shape == [2]
    assert type(spec._replace(loss=other.loss)) is spec_type
    assert spec._replace(loss=other.loss).loss is other.loss
    with pytest.raises(ValueError, match="`loss` is missing"):
        spec.replace(loss=None)
    with pytest.raises(ValueError, match="no field 'losses' to replace. The fields are mode, pred"):
        spec.replace(losses=None)


def test_the_mode_of_an_estimator_spec_does_not_change():
    spec = EstimatorSpec(EVAL, loss=tf.constant(1.0))
    assert spec._replace(mode=EVAL).mode == EVAL
    with pytest.raises(ValueError, match="`mode` .'train'. of an EstimatorSpec cannot change"):
        spec._replace(mode=TRAIN)


def test_the_fields_are_in_the_order_that_they_always_had():
    assert EstimatorSpec._fields == (
        *("mode", "predictions", "loss", "train_op", "eval_metric_ops", "export_outputs"),
        *("training_chief_hooks", "training_hooks", "scaffold"),
        *("evaluation_hooks", "prediction_hooks"),
    )
    assert TPUEstimatorSpec._fields == (
        *("mode", "predictions", "loss", "train_op", "eval_metrics", "export_outputs"),
        *("scaffold_fn", "host_call", "training_hooks", "evaluation_hooks", "prediction_hooks"),
    )


@pytest.mark.parametrize("spec_type", SPECS)
def test_a_spec_is_a_named_tuple(spec_type):
    loss, predictions = tf.constant(1.0), {"p": tf.constant([1.0])}
    spec = spec_type(EVAL, predictions, loss)
    assert isinstance(spec, tuple)
    mode, given, third, *rest = spec
    assert (mode, given, len(spec), len(rest)) == (EVAL, predictions, 11, 8)
    assert third is spec[2] is spec.loss is loss
    assert spec[-1] == spec.prediction_hooks == ()
    assert list(spec._asdict()) == list(spec_type._fields)
    assert spec_type(**spec._asdict()) == spec == tuple(spec)
    for same in (spec_type._make(spec), copy.copy(spec)):
        assert same == spec
        assert type(same) is spec_type
    assert spec != spec_type(EVAL, predictions, loss + 1)
    assert repr(spec).startswith(f"{spec_type.__name__}(mode='eval', predictions={{")
    # TensorFlow sees into a named tuple.
    assert [part is loss for part in tf.nest.flatten(spec)].count(True) == 1
    assert type(tf.nest.map_structure(lambda part: part, spec)) is spec_type


@pytest.mark.parametrize("spec_type", SPECS)
def test_a_subclass_with_more_is_made_of_the_same_fields(spec_type):
    class Mine(spec_type):
        @property
        def double(self):
            return self.loss * 2

    assert Mine(EVAL, loss=tf.constant(1.0)).double.shape == []


@pytest.mark.parametrize("spec_type", SPECS)
def test_export_outputs_may_be_added_later(spec_type):
    outputs = {"a": PredictOutput(tf.constant([1.0]))}
    spec = spec_type(PREDICT, predictions=tf.constant([1.0]), export_outputs=outputs)
    spec.export_outputs["b"] = outputs["a"]
    assert sorted(outputs) == ["a", "b", "serving_default"]


@pytest.mark.parametrize("spec_type", SPECS)
def test_hooks_are_kept_as_a_tuple(spec_type):
    hook = Hook()
    assert spec_type(TRAIN, **valid(TRAIN), training_hooks=[hook]).training_hooks == (hook,)


def metric_fn(labels, logits):
    return {"mean": v1.metrics.mean(labels + logits)}


@pytest.mark.parametrize("named", [False, True])
def test_as_an_estimator_spec_the_metrics_are_built(named):
    tensors = {"labels": tf.constant([1.0, 2.0]), "logits": tf.constant([3.0, 4.0])}
    hook, scaffold = Hook(), v1.train.Scaffold()
    tpu = TPUEstimatorSpec(
        EVAL,
        loss=tf.constant(1.0),
        eval_metrics=(metric_fn, tensors if named else list(tensors.values())),
        scaffold_fn=lambda: scaffold,
        evaluation_hooks=[hook],
    )
    spec = tpu.as_estimator_spec()
    assert isinstance(spec, EstimatorSpec)
    assert (spec.mode, spec.loss, spec.scaffold) == (EVAL, tpu.loss, scaffold)
    assert spec.evaluation_hooks == (hook,)
    with v1.Session() as session:
        session.run(v1.local_variables_initializer())
        assert session.run(spec.eval_metric_ops["mean"][1]) == 5.0


def test_a_class_without_a_signature_may_make_the_metrics():
    tensors = {"mean": v1.metrics.mean([2.0, 4.0])[1]}
    tpu = TPUEstimatorSpec(EVAL, loss=tf.constant(1.0), eval_metrics=(dict, tensors))
    assert tpu.eval_metrics == (dict, tensors)


@pytest.mark.parametrize("mode", [TRAIN, PREDICT])
def test_metrics_are_built_only_to_evaluate(mode):
    tpu = TPUEstimatorSpec(mode, **valid(mode), eval_metrics=(metric_fn, [tf.constant(1.0)] * 2))
    assert tpu.as_estimator_spec().eval_metric_ops == {}
    assert not v1.get_collection(v1.GraphKeys.METRIC_VARIABLES)


@pytest.mark.parametrize("argument", ["eval_metrics", "host_call"])
@pytest.mark.parametrize(
    ("make_call", "message"),
    [
        (lambda t: metric_fn, r"must be \(function, list or dict of tensors\)"),
        (lambda t: (metric_fn,), r"must be \(function, list or dict of tensors\)"),
        (lambda t: ([t, t], metric_fn), r"must be \(function, list or dict of tensors\)"),
        (lambda t: (metric_fn, t), "for its tensors. They must be a list or a dict"),
        (lambda t: (metric_fn, [t, 1]), r"\[1\]\[1\]` .1. must be a tensor"),
        (lambda t: (metric_fn, {"labels": 2}), r"\[1\]\['labels'\]` .2. must be a tensor"),
        (lambda t: (metric_fn, [t]), "missing a required argument: 'logits'.* 1 by position"),
        (lambda t: (metric_fn, {"labels": t}), r"'logits'.* its tensors are \['labels'\]"),
    ],
)
def test_a_function_and_its_tensors_must_fit(argument, make_call, message):
    with pytest.raises(TypeError, match=f"`{argument}.*{message}"):
        TPUEstimatorSpec(EVAL, loss=tf.constant(1.0), **{argument: make_call(tf.constant(1.0))})
