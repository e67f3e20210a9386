"""What TPUEstimator adds to an Estimator: `params`, batch sizes and `host_call`, without a TPU."""

import inspect
import json
import logging

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.compat.contrib.contrib_training import HParams
from estimator.config.cluster import parse_tf_config
from estimator.config.tpu_context import TPUContext
from estimator.estimators import estimator as estimator_module
from estimator.estimators.global_batches import GlobalBatches
from estimator.runtime.strategy import make_runtime
from tests.conformance.cases import STRATEGIES

V1 = tf.compat.v1
TRAIN, EVAL, PREDICT = est.ModeKeys.TRAIN, est.ModeKeys.EVAL, est.ModeKeys.PREDICT
REPLICAS = pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
LOOPS = pytest.mark.parametrize("loop", [1, 100])


def make_config(strategy="no_strategy", loop=2, **options):
    return est.tpu.RunConfig(
        est.tpu.TPUConfig(iterations_per_loop=loop, **options),
        log_step_count_steps=None,
        save_summary_steps=None,
        **STRATEGIES[strategy],
    )


def num_replicas_in(mode, strategy):
    if mode != TRAIN and strategy.startswith("central_storage"):
        return 1  # Which evaluates and predicts on one.
    return STRATEGIES[strategy].get("num_replicas", 1)


def numbers(count, batch_size, **options):
    return tf.data.Dataset.range(count).map(float_of).batch(batch_size, **options)


def float_of(x):
    return tf.cast(x, tf.float32)


def mean_model(features, labels, mode, params):
    """Its weight goes to the mean of the features."""
    w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(w - features))
    step = V1.train.get_global_step()
    train_op = V1.train.GradientDescentOptimizer(0.25).minimize(loss, step)
    return est.tpu.TPUEstimatorSpec(mode, predictions=features, loss=loss, train_op=train_op)


SIZES = {"train_batch_size": 4, "eval_batch_size": 8, "predict_batch_size": 6}
ARGUMENTS = dict(zip((TRAIN, EVAL, PREDICT), SIZES, strict=True))


def test_the_arguments_are_those_of_tensorflow_2_15_in_their_order():
    assert list(inspect.signature(est.tpu.TPUEstimator).parameters) == [
        "model_fn",
        "model_dir",
        "config",
        "params",
        "use_tpu",
        "train_batch_size",
        "eval_batch_size",
        "predict_batch_size",
        "batch_axis",
        "eval_on_tpu",
        "export_to_tpu",
        "export_to_cpu",
        "warm_start_from",
        "embedding_config_spec",
        "export_saved_model_api_version",
    ]
    assert list(inspect.signature(est.tpu.TPUEstimatorSpec).parameters) == [
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
    ]


def test_what_only_a_tpu_reads_is_taken(tmp_path):
    model = est.tpu.TPUEstimator(
        mean_model,
        str(tmp_path),
        make_config(),
        use_tpu=False,
        eval_on_tpu=False,
        export_to_tpu=False,
        export_saved_model_api_version=2,
    )
    assert model.train(lambda params: numbers(4, 2)).train_result.global_step == 2


class Seen:
    """A model_fn and an input_fn that keep the `params` of each mode."""

    def __init__(self):
        self.of_input, self.of_model = {}, {}

    def input_fn(self, params, mode):
        self.of_input[mode] = params
        return numbers(24, params["batch_size"])

    def model_fn(self, features, labels, mode, params):
        self.of_model.setdefault(mode, []).append(params)
        return mean_model(features, labels, mode, params)


@REPLICAS
def test_params_tell_of_the_batch_size_and_the_replicas_in_each_mode(strategy, tmp_path):
    seen = Seen()
    given = {"rate": 0.5}
    with est.tpu.TPUEstimator(
        seen.model_fn, str(tmp_path / "model"), make_config(strategy), given, **SIZES
    ) as model:
        model.train(seen.input_fn, steps=2)
        model.evaluate(seen.input_fn)
        assert list(model.predict(seen.input_fn)) == list(range(24))
        x = tf.TensorSpec([None])
        receiver_fn = est.export.build_raw_serving_input_receiver_fn({"feature": x})
        seen.of_export = seen.of_model.setdefault(PREDICT, [])
        before = len(seen.of_export)

        def receive():
            receiver = receiver_fn()
            return est.export.TensorServingInputReceiver(
                receiver.features["feature"], receiver.receiver_tensors
            )

        model.export_saved_model(str(tmp_path / "export"), receive)
    for mode, argument in ARGUMENTS.items():
        num_replicas = num_replicas_in(mode, strategy)
        of_input, of_model = seen.of_input[mode], seen.of_model[mode]
        assert len(of_model[:before] if mode == PREDICT else of_model) == num_replicas
        for params in (of_input, of_model[0]):
            assert params["batch_size"] == SIZES[argument] // num_replicas
            assert params["rate"] == 0.5
            assert params["context"].num_replicas == num_replicas
            assert params["context"].num_of_replicas_per_host == num_replicas
        assert "use_tpu" not in of_input
        assert of_model[0]["use_tpu"] is False
        assert of_input["context"].current_input_fn_deployment()[1:] == (0, 1, num_replicas)
        assert of_model[0]["context"].device_assignment is None
    (of_export,) = seen.of_export[before:]
    assert sorted(of_export) == ["context", "rate", "use_tpu"]
    assert given == {"rate": 0.5}
    assert model.params == given


def test_params_may_be_hparams(tmp_path):
    """As of tf.contrib.training, or of a library that brought its own."""
    seen, given = Seen(), HParams(rate=0.5)

    def input_fn(params, mode):
        seen.of_input[mode] = params
        return numbers(24, params.batch_size)

    def model_fn(features, labels, mode, params):
        return seen.model_fn(features, labels, mode, params.values())

    def receive():
        x = tf.compat.v1.placeholder(tf.float32, [None])
        return est.export.TensorServingInputReceiver(x, x)

    with est.tpu.TPUEstimator(model_fn, str(tmp_path), make_config(), given, **SIZES) as model:
        model.train(input_fn, steps=2)
        model.evaluate(input_fn)
        assert list(model.predict(input_fn)) == list(range(24))
        model.export_saved_model(str(tmp_path / "export"), receive)
    for mode, argument in ARGUMENTS.items():
        of_input, of_model = seen.of_input[mode], seen.of_model[mode]
        assert of_input.context.current_input_fn_deployment()[1:] == (0, 1, 1)
        assert of_input.batch_size == of_model[0]["batch_size"] == SIZES[argument]
    assert sorted(seen.of_model[PREDICT][-1]) == ["context", "rate", "use_tpu"]
    assert model.params.values() == given.values() == {"rate": 0.5}


def test_params_of_the_user_stay_for_the_input(tmp_path):
    seen = Seen()
    model = est.tpu.TPUEstimator(
        seen.model_fn, str(tmp_path), make_config(), {"use_tpu": True}, **SIZES
    )
    model.train(seen.input_fn, steps=1)
    assert seen.of_input[TRAIN]["use_tpu"] is True
    assert seen.of_model[TRAIN][0]["use_tpu"] is False


def test_without_a_batch_size_there_is_none_in_params(tmp_path):
    seen = Seen()
    model = est.tpu.TPUEstimator(seen.model_fn, str(tmp_path), make_config())
    model.train(lambda params: numbers(4, 2), steps=1)
    assert "batch_size" not in seen.of_model[TRAIN][0]
    with pytest.raises(ValueError, match=r'`input_fn` asks for params\["batch_size"\]'):
        model.evaluate(seen.input_fn)


def test_a_context_of_a_call_of_input_fn():
    context = TPUContext(8, tf.distribute.InputContext(4, 3, 8))
    assert context.current_input_fn_deployment() == ("/device:CPU:0", 3, 4, 2)
    assert context.current_host == 0
    assert context.num_hosts == 1
    assert context.num_replicas == context.num_of_replicas_per_host == 8
    assert context.device_for_replica(7) == ("/device:CPU:0", 7)
    assert context.tpu_host_placement_function(0) == "/device:CPU:0"
    assert repr(context) == "TPUContext(num_replicas=8)"
    with pytest.raises(RuntimeError, match=r"device_assignment` is for `model_fn`"):
        context.device_assignment  # noqa: B018 - it raises
    with pytest.raises(ValueError, match=r"`replica_id` \(8\) must be less than 8"):
        context.device_for_replica(8)
    with pytest.raises(ValueError, match=r"`host_id` \(1\) must be less than 1"):
        context.tpu_host_placement_function(1)


def test_a_context_of_one_of_several_workers():
    context = TPUContext(8, tf.distribute.InputContext(4, 2, 8), num_hosts=4, host=2)
    assert (context.current_host, context.num_hosts) == (2, 4)
    assert context.num_of_replicas_per_host == 2
    assert context.current_input_fn_deployment() == ("/device:CPU:0", 2, 4, 2)
    assert context.device_for_replica(7) == ("/device:CPU:0", 1)
    assert context.tpu_host_placement_function(3) == "/device:CPU:0"
    assert repr(context) == "TPUContext(num_replicas=8, num_hosts=4)"


@pytest.mark.parametrize(("role", "index", "host"), [("chief", 0, 0), ("worker", 1, 2)])
def test_beside_ps_tasks_each_worker_is_a_host_with_a_replica(role, index, host):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    text = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
    config = est.tpu.RunConfig(cluster=parse_tf_config(text))
    sizes = {mode: (argument, SIZES[argument]) for mode, argument in ARGUMENTS.items()}
    batches = GlobalBatches(config, {}, sizes=sizes)
    runtime = make_runtime(config, TRAIN)
    call = tf.distribute.InputContext(3, host, 1)
    context = batches.input_params(runtime, call)["context"]
    assert (context.current_host, context.num_hosts, context.num_replicas) == (host, 3, 3)
    assert context.current_input_fn_deployment()[1:] == (host, 3, 1)
    assert batches.model_params(runtime)["context"].num_hosts == 3
    assert batches.model_params(make_runtime(config, PREDICT))["context"].num_hosts == 1


@pytest.mark.parametrize("member", ["current_host", "current_input_fn_deployment"])
def test_a_context_of_model_fn_knows_no_call_of_input_fn(member):
    context = TPUContext(2)
    assert context.device_assignment is None
    with pytest.raises(RuntimeError, match=rf"{member}.* is for `input_fn`"):
        getattr(context, member)()


# --- Batches -------------------------------------------------------------------------------------


@REPLICAS
def test_a_last_batch_that_is_not_whole_is_predicted_and_evaluated(strategy, tmp_path):
    def model_fn(features, labels, mode, params):
        spec = mean_model(features, labels, mode, params)
        metrics = V1.metrics.mean, [features]
        return spec.replace(eval_metrics=(lambda x: {"mean": metrics[0](x)}, [features]))

    def input_fn(params):
        return numbers(23, params["batch_size"])

    with est.tpu.TPUEstimator(model_fn, str(tmp_path), make_config(strategy), **SIZES) as model:
        model.train(input_fn, steps=1)
        assert list(model.predict(input_fn)) == list(range(23))
        assert model.evaluate(input_fn)["mean"] == 11.0  # Without `steps`: all of it.
        assert model.evaluate(input_fn, steps=2)["mean"] == 7.5  # Two global batches of 8.


SHAPES = {
    "batch": lambda size: numbers(99, size),
    "batch without a rest": lambda size: numbers(99, size, drop_remainder=True),
    "batch, then what keeps batches": lambda size: (
        numbers(99, size).shuffle(5).cache().skip(1).take(5).repeat().prefetch(2)
    ),
    "padded batch": lambda size: (
        tf.data.Dataset.range(99).map(lambda x: tf.fill([x % 3], 1.0)).padded_batch(size)
    ),
    "map and batch": lambda size: tf.data.Dataset.range(99).apply(
        tf.data.experimental.map_and_batch(float_of, size)
    ),
    "tensors": lambda size: tf.ones([size, 3]),
    "features and labels": lambda size: numbers(99, size).map(
        lambda x: ({"x": tf.ensure_shape(x, [size])}, tf.reshape(x, [size, 1]))
    ),
}


@pytest.fixture(scope="module")
def mean_checkpoint(tmp_path_factory):
    """The path of a checkpoint of `mean_model`."""
    model = est.tpu.TPUEstimator(mean_model, str(tmp_path_factory.mktemp("mean")), make_config())
    return model.train(lambda: numbers(2, 2)).latest_checkpoint()


@pytest.mark.parametrize("shape", SHAPES)
def test_batches_of_another_size_than_was_asked_for_are_refused_in_training(shape, tmp_path):
    built = []

    def model_fn(features, labels, mode, params):
        built.append(mode)

    def input_fn(params):
        assert params["batch_size"] == 4
        return SHAPES[shape](8)

    config = make_config("mirrored_x2")
    model = est.tpu.TPUEstimator(model_fn, str(tmp_path), config, train_batch_size=8)
    with pytest.raises(ValueError, match=r"`input_fn` yields batches of 8 examples") as caught:
        model.train(input_fn)
    says = 'params["batch_size"] is 4, a replica\'s part of `train_batch_size` (8). Batch by'
    assert says in str(caught.value)
    assert built == []


@pytest.mark.parametrize("mode", [EVAL, PREDICT])
def test_no_other_result_depends_on_the_size_of_the_batches(
    mode, mean_checkpoint, tmp_path, caplog
):
    config = make_config("mirrored_x2")
    model = est.tpu.TPUEstimator(mean_model, str(tmp_path), config, **{ARGUMENTS[mode]: 8})

    def result(size):
        verb = (
            model.evaluate if mode == EVAL else lambda *args, **kw: list(model.predict(*args, **kw))
        )
        return verb(lambda params: numbers(8, size), checkpoint_path=mean_checkpoint)

    with caplog.at_level(logging.WARNING, "estimator"):
        expected = result(4)
        assert "yields" not in caplog.text
        assert result(2) == expected
    says = (
        "`input_fn` yields batches of 2 examples, not of 4, a replica's part of `{}` (8). Batch by"
    )
    assert says.format(ARGUMENTS[mode]) in caplog.text


UNTOLD = {
    "filtered after": lambda size: numbers(99, size).filter(lambda x: tf.size(x) > 0),
    "mapped after": lambda size: numbers(99, size).map(lambda x: x * 2.0),
    "another dimension": lambda size: numbers(99, size, drop_remainder=True).map(
        lambda x: tf.reshape(tf.tile(x, [4]), [size, 4])
    ),
    "a feature beside": lambda size: numbers(99, 4).map(
        lambda x: {"x": x, "all": tf.ones([size, 3])}
    ),
    "one of two": lambda size: numbers(99, size).map(lambda x: (x[:4], x)),
    "whole": lambda size: numbers(99, 4),
}


@pytest.mark.parametrize("shape", UNTOLD)
def test_batches_that_may_be_right_are_taken(shape, tmp_path):
    def model_fn(features, labels, mode, params):
        features = features["x"] if isinstance(features, dict) else features
        return mean_model(features, labels, mode, params)

    model = est.tpu.TPUEstimator(
        model_fn, str(tmp_path), make_config("mirrored_x2"), train_batch_size=8
    )
    model.train(lambda params: UNTOLD[shape](8), steps=2)
    assert model.train_result.global_step == 2


KINDS = est.tpu.InputPipelineConfig
PART, WHOLE = "4, a replica's part of `train_batch_size` (8)", "8, as `train_batch_size` says"


@pytest.mark.parametrize(
    ("kind", "deployments", "asked_for", "meaning"),
    [
        (KINDS.PER_SHARD_V1, [(0, 2, 1), (1, 2, 1)], 4, PART),
        (KINDS.PER_HOST_V1, [(0, 1, 2)], 4, PART),
        (KINDS.PER_HOST_V2, [(0, 1, 2)], 4, PART),
        (KINDS.BROADCAST, [(0, 1, 2)], 8, WHOLE),
        (KINDS.SLICED, [(0, 1, 2)], 8, WHOLE),
    ],
)
def test_each_kind_of_pipeline_says_what_a_call_of_input_fn_is_for(
    kind, deployments, asked_for, meaning, tmp_path
):
    seen = []

    def input_fn(params):
        seen.append(params)
        return numbers(32, params["batch_size"], drop_remainder=True)

    config = make_config("mirrored_x2", per_host_input_for_training=kind)
    model = est.tpu.TPUEstimator(mean_model, str(tmp_path), config, train_batch_size=8)
    model.train(input_fn, steps=1)
    assert [p["context"].current_input_fn_deployment()[1:] for p in seen] == deployments
    assert {p["batch_size"] for p in seen} == {asked_for}
    with pytest.raises(ValueError, match="`input_fn` yields batches of 6 examples") as caught:
        model.train(lambda params: numbers(32, 6, drop_remainder=True), steps=1)
    assert f'params["batch_size"] is {meaning}. Batch by' in str(caught.value)


def test_an_input_fn_that_takes_no_params_has_its_own_batches(tmp_path, caplog):
    model = est.tpu.TPUEstimator(
        mean_model, str(tmp_path), make_config("mirrored_x2"), train_batch_size=128
    )
    with caplog.at_level(logging.WARNING, "estimator"):
        model.train(lambda: numbers(12, 3))
    assert model.train_result.global_step == 2
    (message,) = [m for m in caplog.messages if "takes no `params`" in m]
    says = "yields batches of 3 examples, not of 64, a replica's part of `train_batch_size`"
    assert f"{says} (128)" in message


@pytest.mark.each_value
@LOOPS
@REPLICAS
def test_batch_axis_says_where_the_examples_are(strategy, loop, tmp_path):
    """Images as [height, width, channels, batch], as they were sent to a TPU."""
    images = np.random.RandomState(0).rand(12, 2, 3, 1).astype(np.float32)

    def input_fn(params):
        data = tf.data.Dataset.from_tensor_slices((images, images.sum(axis=(1, 2, 3))))
        data = data.batch(params["batch_size"], drop_remainder=True)
        return data.map(lambda x, y: (tf.transpose(x, [1, 2, 3, 0]), y))

    def model_fn(features, labels, mode, params):
        assert features.shape == [2, 3, 1, params["batch_size"]]
        return mean_model(tf.transpose(features, [3, 0, 1, 2]), labels, mode, params)

    def train(batch_axis, input_fn):
        model = est.tpu.TPUEstimator(
            model_fn,
            str(tmp_path / str(batch_axis[0])),
            make_config(strategy, loop),
            train_batch_size=4,
            batch_axis=batch_axis,
        )
        return model.train(input_fn)

    assert train([3, 0], input_fn).get_variable_value("w") == pytest.approx(
        sgd_to_means(images.reshape(3, -1)), rel=1e-6
    )
    with pytest.raises(ValueError, match="`input_fn` yields batches of 1 examples"):
        train([2, 0], input_fn)


def sgd_to_means(batches):
    w = 0.0
    for batch in batches:
        w -= 0.25 * 2 * (w - batch.mean())
    return w


# --- host_call -----------------------------------------------------------------------------------


class Host:
    """A host_fn that keeps what it gets, as a list of rows."""

    def __init__(self):
        self.calls = []

    def __call__(self, features, step):
        def keep(features, step):
            self.calls.append((features.tolist(), step.tolist()))
            return np.int64(0)

        return [tf.numpy_function(keep, [features, step], tf.int64, stateful=True), None]

    def model_fn(self, form):
        def model_fn(features, labels, mode, params):
            tensors = [features, tf.reshape(V1.train.get_global_step(), [1])]
            if form == "dict":
                tensors = dict(zip(("features", "step"), tensors, strict=True))
            if form == "tuple":
                tensors = tuple(tensors)
            return mean_model(features, labels, mode, params).replace(host_call=(self, tensors))

        return model_fn


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("form", ["list", "tuple", "dict"])
def test_host_call_sees_the_batches_of_all_replicas_in_every_mode(form, loop, tmp_path):
    host = Host()
    sizes = {"train_batch_size": 4, "eval_batch_size": 4, "predict_batch_size": 4}

    def input_fn(params):
        return numbers(8, params["batch_size"])

    with est.tpu.TPUEstimator(
        host.model_fn(form), str(tmp_path), make_config("mirrored_x2", loop), **sizes
    ) as model:
        model.train(input_fn)
        assert host.calls == [([0, 1, 2, 3], [0, 0]), ([4, 5, 6, 7], [1, 1])]
        host.calls.clear()
        model.evaluate(input_fn)
        a_replica_each = [([i, i + 1], [2]) for i in (0, 2, 4, 6)]
        assert sorted(host.calls) == a_replica_each
        host.calls.clear()
        assert list(model.predict(input_fn)) == list(range(8))
        assert sorted(host.calls) == a_replica_each
        host.calls.clear()
        list(model.predict(lambda: numbers(1, 1)))  # A batch for one of the replicas only.
        assert host.calls == [([0], [2])]


@LOOPS
@pytest.mark.parametrize("form", ["list", "dict"])
def test_as_estimator_spec_runs_the_host_call_under_an_estimator(form, loop, tmp_path):
    host = Host()
    tpu_model_fn = host.model_fn(form)

    def model_fn(features, labels, mode, params):
        return tpu_model_fn(features, labels, mode, params).as_estimator_spec()

    config = est.RunConfig(iterations_per_loop=loop)
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(lambda: numbers(4, 2))
        assert host.calls == [([0, 1], [0]), ([2, 3], [1])]
        host.calls.clear()
        model.evaluate(lambda: numbers(4, 2))
        assert host.calls == [([0, 1], [2]), ([2, 3], [2])]
        host.calls.clear()
        list(model.predict(lambda: numbers(4, 2)))
        assert host.calls == [([0, 1], [2]), ([2, 3], [2])]


@LOOPS
def test_a_host_call_that_reads_the_global_step_gets_what_the_step_leaves(loop, tmp_path):
    steps = []

    def host_fn(features):
        keep = lambda step: (steps.append(int(step)), np.int64(0))[1]  # noqa: E731
        return tf.numpy_function(keep, [V1.train.get_global_step()], tf.int64, stateful=True)

    def model_fn(features, labels, mode, params):
        spec = mean_model(features, labels, mode, params)
        return spec.replace(host_call=(host_fn, [features]))

    with est.tpu.TPUEstimator(
        model_fn, str(tmp_path), make_config("no_strategy", loop), train_batch_size=1
    ) as model:
        model.train(lambda params: numbers(20, 1))
    assert steps == list(range(1, 21))


@LOOPS
def test_a_host_call_sees_no_weights_of_a_step_that_is_reverted(loop, tmp_path):
    seen = []

    def host_fn(features):
        keep = lambda w: (seen.append(float(w)), np.int64(0))[1]  # noqa: E731
        with V1.variable_scope("", reuse=True):
            return tf.numpy_function(keep, [V1.get_variable("w")], tf.int64, stateful=True)

    def model_fn(features, labels, mode, params):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        value = tf.reduce_sum(tf.cast(features, tf.float32))
        loss = w * tf.where(tf.equal(value, 2), np.nan, 1.0)
        optimizer = V1.train.GradientDescentOptimizer(1.0)
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        host_call = (host_fn, [features])
        return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)

    config = est.tpu.RunConfig(est.tpu.TPUConfig(loop), nan_policy="skip")
    model = est.tpu.TPUEstimator(model_fn, str(tmp_path), config, train_batch_size=1)
    with model:
        model.train(lambda params: numbers(5, 1))
    assert seen == [-1, -2, -2, -3, -4]


def test_what_a_host_call_writes_is_in_its_file_when_the_call_returns(tmp_path):
    def model_fn(features, labels, mode, params):
        def write(x):
            writer = tf.summary.create_file_writer(str(tmp_path / mode))
            with writer.as_default(step=0):
                tf.summary.scalar("x", x[0])
            return tf.compat.v1.summary.all_v2_summary_ops()

        spec = mean_model(features, labels, mode, params)
        return spec.replace(host_call=(write, [tf.reshape(spec.predictions, [-1])]))

    def num_written(mode):
        (file,) = (tmp_path / mode).iterdir()
        return sum(
            bool(event.summary.value) for event in tf.compat.v1.train.summary_iterator(str(file))
        )

    sizes = {"train_batch_size": 4, "eval_batch_size": 4, "predict_batch_size": 4}
    model = est.tpu.TPUEstimator(model_fn, str(tmp_path / "model"), make_config(), **sizes)
    with model:
        model.train(lambda params: numbers(4, 4))
        for times in (1, 2):
            model.evaluate(lambda params: numbers(8, 4))
            assert num_written("eval") == 2 * times
        list(model.predict(lambda params: numbers(8, 4)))
        assert num_written("infer") == 2


def test_it_is_made_with_its_own_batches_and_no_others(monkeypatch, tmp_path):
    monkeypatch.setattr(estimator_module, "Batches", None)  # Those of an Estimator.
    model = est.tpu.TPUEstimator(mean_model, str(tmp_path), make_config(), **SIZES)
    assert "train_batch_size=4" in repr(model).replace(" ", "")
