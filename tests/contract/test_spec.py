"""EstimatorSpec, TPUEstimatorSpec and ModeKeys: fields, defaults, checks."""

import pytest

from tests.contract.names import EVAL, PREDICT, TRAIN, est, tf, v1, v1est

FIELDS = (
    "mode",
    "predictions",
    "loss",
    "train_op",
    "eval_metric_ops",
    "export_outputs",
    "training_chief_hooks",
    "training_hooks",
    "scaffold",
    "evaluation_hooks",
    "prediction_hooks",
)
TPU_FIELDS = (
    "mode",
    "predictions",
    "loss",
    "train_op",
    "eval_metrics",
    "export_outputs",
    "scaffold_fn",
    "host_call",
    "training_hooks",
    "evaluation_hooks",
    "prediction_hooks",
)
SPECS = {"EstimatorSpec": est.EstimatorSpec, "TPUEstimatorSpec": v1est.tpu.TPUEstimatorSpec}


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture(params=SPECS)
def spec_class(request):
    return SPECS[request.param]


def needed(mode):
    """The arguments that a mode needs."""
    return {
        TRAIN: {"loss": tf.constant(1.0), "train_op": tf.no_op()},
        EVAL: {"loss": tf.constant(1.0)},
        PREDICT: {"predictions": {"y": tf.constant([1.0])}},
    }[mode]


@pytest.mark.parametrize(
    ("name", "value"), [("TRAIN", "train"), ("EVAL", "eval"), ("PREDICT", "infer")]
)
def test_mode_keys(name, value):
    assert getattr(est.ModeKeys, name) == value
    assert getattr(v1est.ModeKeys, name) == value


@pytest.mark.parametrize(
    ("name", "fields"), [("EstimatorSpec", FIELDS), ("TPUEstimatorSpec", TPU_FIELDS)]
)
def test_fields_and_their_order(name, fields):
    spec = SPECS[name](PREDICT, **needed(PREDICT))
    assert spec._fields == fields
    assert list(spec._asdict()) == list(fields)
    assert isinstance(spec, tuple)


def test_unpacks_in_order(spec_class):
    loss, train_op = tf.constant(1.0), tf.no_op()
    mode, predictions, got_loss, got_train_op, *_ = spec_class(TRAIN, loss=loss, train_op=train_op)
    assert (mode, got_loss, got_train_op) == (TRAIN, loss, train_op)
    assert predictions == {}


def test_can_be_indexed(spec_class):
    spec = spec_class(EVAL, loss=tf.constant(1.0))
    assert spec[0] == EVAL
    assert spec[2] is spec.loss
    assert len(spec) == 11


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("predictions", {}),
        ("train_op", None),
        ("eval_metric_ops", {}),
        ("export_outputs", None),
        ("training_chief_hooks", ()),
        ("training_hooks", ()),
        ("evaluation_hooks", ()),
        ("prediction_hooks", ()),
    ],
)
def test_default(field, default):
    assert getattr(est.EstimatorSpec(EVAL, loss=tf.constant(1.0)), field) == default


def test_default_scaffold_is_an_empty_one():
    scaffold = est.EstimatorSpec(EVAL, loss=tf.constant(1.0)).scaffold
    assert isinstance(scaffold, v1.train.Scaffold)
    assert scaffold.saver is None


@pytest.mark.parametrize("field", ["eval_metrics", "scaffold_fn", "host_call", "export_outputs"])
def test_default_of_tpu_spec(field):
    spec = v1est.tpu.TPUEstimatorSpec(EVAL, loss=tf.constant(1.0))
    assert getattr(spec, field) is None


@pytest.mark.parametrize(
    ("mode", "missing"),
    [(TRAIN, "loss"), (TRAIN, "train_op"), (EVAL, "loss"), (PREDICT, "predictions")],
)
def test_missing_argument_is_a_value_error(spec_class, mode, missing):
    arguments = needed(mode)
    del arguments[missing]
    with pytest.raises(ValueError, match=missing):
        spec_class(mode, **arguments)


@pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
def test_what_another_mode_needs_may_be_given(spec_class, mode):
    everything = {**needed(TRAIN), **needed(PREDICT)}
    spec = spec_class(mode, **everything)
    assert spec.train_op is everything["train_op"]
    assert spec.predictions == everything["predictions"]


@pytest.mark.parametrize("mode", [TRAIN, EVAL])
@pytest.mark.parametrize("shape", [[1], [1, 1], [1, 1, 1]], ids=str)
def test_loss_of_one_element_becomes_a_scalar(spec_class, mode, shape):
    arguments = {**needed(mode), "loss": tf.zeros(shape)}
    assert spec_class(mode, **arguments).loss.shape.as_list() == []


@pytest.mark.parametrize("shape", [[None], [None, 1], None], ids=str)
def test_loss_of_unknown_size_is_accepted(spec_class, shape):
    loss = v1.placeholder(tf.float32, shape)
    spec = spec_class(TRAIN, loss=loss, train_op=tf.no_op())
    assert spec.loss.shape.rank in (0, None)


def test_scalar_loss_is_the_same_tensor(spec_class):
    loss = tf.constant(1.0)
    assert spec_class(EVAL, loss=loss).loss is loss


@pytest.mark.parametrize("shape", [[2], [2, 2]], ids=str)
def test_larger_loss_in_training_is_a_value_error(spec_class, shape):
    with pytest.raises(ValueError):
        spec_class(TRAIN, loss=tf.zeros(shape), train_op=tf.no_op())


WRONG_TYPES = {
    "loss": ("loss", 1.0),
    "train_op": ("train_op", "train"),
    "predictions": ("predictions", [1.0]),
    "a prediction": ("predictions", {"y": 1.0}),
    "training_hooks": ("training_hooks", ["hook"]),
    "evaluation_hooks": ("evaluation_hooks", [1]),
    "prediction_hooks": ("prediction_hooks", [object()]),
    "a training hook's class": ("training_hooks", [v1.train.SessionRunHook]),
}


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_wrong_type_is_a_type_error(spec_class, case):
    name, value = WRONG_TYPES[case]
    arguments = {**needed(TRAIN), **needed(PREDICT), name: value}
    with pytest.raises(TypeError):
        spec_class(TRAIN, **arguments)


WRONG_TYPES_OF_ONE = {
    "scaffold": ("scaffold", 1),
    "training_chief_hooks": ("training_chief_hooks", ["hook"]),
    "eval_metric_ops in a list": ("eval_metric_ops", ["acc"]),
    "a metric that is no pair": ("eval_metric_ops", {"acc": 1}),
    "a metric of three": ("eval_metric_ops", {"acc": (1, 2, 3)}),
    "a metric in a list": ("eval_metric_ops", {"acc": [1, 2]}),
}


@pytest.mark.parametrize("case", WRONG_TYPES_OF_ONE)
def test_wrong_type_in_estimator_spec_is_a_type_error(case):
    name, value = WRONG_TYPES_OF_ONE[case]
    with pytest.raises(TypeError):
        est.EstimatorSpec(EVAL, loss=tf.constant(1.0), **{name: value})


@pytest.mark.parametrize("outputs", [[1], {"a": 1}, {"a": {"y": 1}}], ids=str)
def test_wrong_export_outputs_are_a_type_error(spec_class, outputs):
    with pytest.raises(TypeError):
        spec_class(PREDICT, export_outputs=outputs, **needed(PREDICT))


@pytest.mark.parametrize("name", ["loss", "train_op", "predictions"])
def test_tensor_of_another_graph_is_a_value_error(spec_class, name):
    with tf.Graph().as_default():
        stranger = tf.constant(1.0)
    with pytest.raises(ValueError):
        spec_class(TRAIN, **{**needed(TRAIN), name: stranger})


def test_metric_of_another_graph_is_a_value_error():
    with tf.Graph().as_default():
        stranger = tf.constant(1.0)
    metrics = {"a": (stranger, stranger)}
    with pytest.raises(ValueError):
        est.EstimatorSpec(EVAL, loss=tf.constant(1.0), eval_metric_ops=metrics)


def test_update_of_a_metric_may_be_an_operation():
    metric = (tf.constant(1.0), tf.no_op())
    spec = est.EstimatorSpec(EVAL, loss=tf.constant(1.0), eval_metric_ops={"a": metric})
    assert spec.eval_metric_ops["a"] == metric


@pytest.mark.parametrize("name", ["loss", "global_step"])
def test_metric_names_of_results_are_no_error_in_training(name):
    metric = {name: (tf.constant(1.0), tf.no_op())}
    spec = est.EstimatorSpec(TRAIN, eval_metric_ops=metric, **needed(TRAIN))
    assert list(spec.eval_metric_ops) == [name]


def test_predictions_may_be_one_tensor(spec_class):
    y = tf.constant([1.0])
    assert spec_class(PREDICT, predictions=y).predictions is y


def test_hooks_become_tuples(spec_class):
    hook = v1.train.SessionRunHook()
    assert spec_class(EVAL, loss=tf.constant(1.0), evaluation_hooks=[hook]).evaluation_hooks == (
        hook,
    )


def test_train_op_may_be_a_tensor(spec_class):
    train_op = tf.constant(1)
    assert spec_class(TRAIN, loss=tf.constant(1.0), train_op=train_op).train_op is train_op


@pytest.mark.parametrize("predictions", ["dict", "tensor"])
def test_one_default_export_output(spec_class, predictions):
    y = tf.constant([1.0])
    spec = spec_class(PREDICT, predictions={"y": y} if predictions == "dict" else y)
    assert list(spec.export_outputs) == ["serving_default"]
    output = spec.export_outputs["serving_default"]
    assert isinstance(output, est.export.PredictOutput)
    assert output.outputs == {"y" if predictions == "dict" else "output": y}


def test_one_export_output_gets_the_default_name_too(spec_class):
    output = est.export.PredictOutput(tf.constant([1.0]))
    spec = spec_class(PREDICT, export_outputs={"a": output}, **needed(PREDICT))
    assert spec.export_outputs == {"a": output, "serving_default": output}


def test_several_export_outputs_need_the_default_name(spec_class):
    output = est.export.PredictOutput(tf.constant([1.0]))
    with pytest.raises(ValueError, match="export_outputs"):
        spec_class(PREDICT, export_outputs={"a": output, "b": output}, **needed(PREDICT))


def test_export_outputs_of_training_are_kept():
    output = est.export.PredictOutput(tf.constant([1.0]))
    spec = est.EstimatorSpec(TRAIN, export_outputs={"a": output, "b": output}, **needed(TRAIN))
    assert spec.export_outputs == {"a": output, "b": output}


def test_replace_returns_a_checked_copy():
    spec = est.EstimatorSpec(EVAL, loss=tf.constant(1.0))
    replaced = spec._replace(predictions={"y": tf.constant([1.0])})
    assert type(replaced) is est.EstimatorSpec
    assert list(replaced.predictions) == ["y"]
    assert replaced.loss is spec.loss


def test_replace_checks():
    with pytest.raises(TypeError):
        est.EstimatorSpec(EVAL, loss=tf.constant(1.0))._replace(loss=1.0)


def test_replacing_the_mode_is_a_value_error():
    with pytest.raises(ValueError, match="mode"):
        est.EstimatorSpec(EVAL, loss=tf.constant(1.0))._replace(mode=PREDICT, predictions=1)


def test_replacing_the_mode_by_itself():
    spec = est.EstimatorSpec(EVAL, loss=tf.constant(1.0))
    assert spec._replace(mode=EVAL).mode == EVAL


def test_fields_are_read_only(spec_class):
    spec = spec_class(EVAL, loss=tf.constant(1.0))
    with pytest.raises(AttributeError):
        spec.loss = None


def test_as_estimator_spec():
    def metric_fn(values):
        return {"mean": v1.metrics.mean(values)}

    tensors = {"values": tf.constant([1.0])}
    spec = v1est.tpu.TPUEstimatorSpec(
        EVAL, loss=tf.constant(1.0), eval_metrics=(metric_fn, tensors)
    ).as_estimator_spec()
    assert isinstance(spec, est.EstimatorSpec)
    assert list(spec.eval_metric_ops) == ["mean"]


def test_as_estimator_spec_calls_metric_fn_with_a_list():
    spec = v1est.tpu.TPUEstimatorSpec(
        EVAL,
        loss=tf.constant(1.0),
        eval_metrics=(lambda values: {"mean": v1.metrics.mean(values)}, [tf.constant([1.0])]),
    ).as_estimator_spec()
    assert list(spec.eval_metric_ops) == ["mean"]


def test_as_estimator_spec_calls_scaffold_fn():
    scaffold = v1.train.Scaffold()
    spec = v1est.tpu.TPUEstimatorSpec(EVAL, loss=tf.constant(1.0), scaffold_fn=lambda: scaffold)
    assert spec.as_estimator_spec().scaffold is scaffold


# --- What differs --------------------------------------------------------------------------------


MISTAKES = {
    "unknown mode": lambda: est.EstimatorSpec("guess", predictions={"y": tf.zeros([1])}),
    "unknown field": lambda: est.EstimatorSpec(EVAL, loss=tf.zeros([]))._replace(los=1),
    "no predictions": lambda: est.EstimatorSpec(PREDICT, predictions={}),
}


@pytest.mark.only_2_15("mistakes in a spec")
@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_in_a_spec_is_accepted(case):
    assert isinstance(MISTAKES[case](), est.EstimatorSpec)


@pytest.mark.only_here("mistakes in a spec")
@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_in_a_spec_is_a_value_error(case):
    with pytest.raises(ValueError, match="guess|los|predictions"):
        MISTAKES[case]()


def keras_metric_in_a_spec():
    metric = tf.keras.metrics.Mean()
    metric.update_state(tf.constant([1.0]))
    spec = est.EstimatorSpec(EVAL, loss=tf.zeros([]), eval_metric_ops={"mean": metric})
    return metric, spec.eval_metric_ops["mean"]


@pytest.mark.only_2_15("a metric of Keras in a spec")
def test_a_metric_of_keras_becomes_a_pair():
    _, kept = keras_metric_in_a_spec()
    assert isinstance(kept, tuple)
    assert len(kept) == 2


@pytest.mark.only_here("a metric of Keras in a spec")
def test_a_metric_of_keras_stays_what_it_was():
    metric, kept = keras_metric_in_a_spec()
    assert kept is metric
