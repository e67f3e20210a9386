"""`InputPipelineConfig`: how often `input_fn` is called, and which batches a replica gets."""

import logging

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.toy import checkpoint_steps

V1 = tf.compat.v1
RATE = 0.5
BATCH = cases.BATCH_SIZE
KINDS = est.tpu.InputPipelineConfig
STRATEGIES = cases.STRATEGIES
LOOPS = pytest.mark.parametrize("loop", [1, 100])
WHERE = pytest.mark.parametrize(
    ("strategy", "loop"),
    [
        ("no_strategy", 100),
        ("one_device", 1),
        ("mirrored_x2", 1),
        ("mirrored_x3", 100),
        ("central_storage_x2", 100),
    ],
)


class Calls:
    """An input_fn, made by `make(params, input_context)`, which notes its calls."""

    def __init__(self, make):
        self._make = make
        self.batch_sizes = []
        self.contexts = []

    def __call__(self, params, input_context):
        self.batch_sizes.append(params["batch_size"])
        self.contexts.append((input_context.input_pipeline_id, input_context.num_input_pipelines))
        return self._make(params, input_context)


def examples():
    return tf.data.Dataset.from_tensor_slices((cases.FEATURES, cases.LABELS))


def whole_batches(params, input_context):
    return examples().batch(params["batch_size"], drop_remainder=True)


def shards(params, input_context):
    """Example i is in pipeline i % n, so batch i of all pipelines is batch i of all examples."""
    shard = examples().shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return shard.batch(params["batch_size"], drop_remainder=True)


def make_model(model_dir, kind, strategy, loop=1, model_fn=None, **arguments):
    tpu_config = est.tpu.TPUConfig(
        iterations_per_loop=loop,
        per_host_input_for_training=kind,
        **arguments.pop("tpu_config", {}),
    )
    config = est.tpu.RunConfig(
        tpu_config,
        save_summary_steps=None,
        log_step_count_steps=None,
        **STRATEGIES[strategy],
        **arguments.pop("config", {}),
    )
    arguments.setdefault("train_batch_size", BATCH)
    model_fn = model_fn or cases.make_softmax_model_fn(
        lambda: V1.train.GradientDescentOptimizer(RATE)
    )
    return est.tpu.TPUEstimator(model_fn, str(model_dir), config, **arguments)


def check_matches(model, num_steps=cases.NUM_STEPS):
    weights, loss = cases.numpy_training(cases.NumpySgd(RATE), num_steps)
    assert model.train_result.global_step == num_steps
    assert model.train_result.loss == pytest.approx(loss, abs=1e-5)
    for name, value in cases.trained_weights(model, ["kernel", "bias"]).items():
        np.testing.assert_allclose(value, weights[name], rtol=0, atol=1e-5, err_msg=name)


def num_replicas_of(strategy):
    return STRATEGIES[strategy].get("num_replicas", 1)


@WHERE
def test_per_shard_calls_the_function_once_a_replica(strategy, loop, tmp_path):
    replicas = num_replicas_of(strategy)
    input_fn = Calls(shards)
    model = make_model(tmp_path, False, strategy, loop)
    model.train(input_fn, max_steps=cases.NUM_STEPS)
    assert model.config.tpu_config.per_host_input_for_training == KINDS.PER_SHARD_V1
    assert input_fn.batch_sizes == [BATCH // replicas] * replicas
    assert input_fn.contexts == [(i, replicas) for i in range(replicas)]
    check_matches(model)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", [True, KINDS.PER_HOST_V2])
@WHERE
def test_per_host_calls_the_function_once(strategy, loop, kind, tmp_path):
    input_fn = Calls(whole_batches)
    model = make_model(tmp_path, kind, strategy, loop)
    model.train(input_fn, max_steps=cases.NUM_STEPS)
    assert input_fn.batch_sizes == [BATCH // num_replicas_of(strategy)]
    assert input_fn.contexts == [(0, 1)]
    check_matches(model)


@WHERE
def test_broadcast_gives_every_replica_the_same_batch(strategy, loop, tmp_path):
    input_fn = Calls(whole_batches)
    model = make_model(tmp_path, KINDS.BROADCAST, strategy, loop)
    model.train(input_fn, max_steps=cases.NUM_STEPS)
    assert input_fn.batch_sizes == [BATCH]
    assert input_fn.contexts == [(0, 1)]
    check_matches(model)


def test_a_broadcast_batch_need_not_be_divisible(tmp_path):
    model = make_model(tmp_path, KINDS.BROADCAST, "mirrored_x2", train_batch_size=7)
    model.train(Calls(whole_batches), steps=2)
    assert model.train_result.global_step == 2


@WHERE
def test_sliced_cuts_each_batch(strategy, loop, tmp_path):
    sizes = []

    def model_fn(features, labels, mode, params):
        sizes.append((params["batch_size"], features.shape[0], labels.shape[0]))
        optimizer = V1.train.GradientDescentOptimizer(RATE)
        return cases.make_softmax_model_fn(lambda: optimizer)(features, labels, mode)

    input_fn = Calls(whole_batches)
    model = make_model(tmp_path, KINDS.SLICED, strategy, loop, model_fn)
    model.train(input_fn, max_steps=cases.NUM_STEPS)
    replicas = num_replicas_of(strategy)
    assert input_fn.batch_sizes == [BATCH]
    assert input_fn.contexts == [(0, 1)]
    assert sizes == [(BATCH // replicas,) * 3] * replicas
    check_matches(model)


@pytest.mark.parametrize(("strategy", "loop"), [("mirrored_x2", 100), ("central_storage_x2", 1)])
def test_sliced_cuts_along_the_batch_axis(strategy, loop, tmp_path):
    """Images as [height, width, channels, batch], and labels as [batch]."""

    def transposed(params, input_context):
        return whole_batches(params, input_context).map(lambda x, y: (tf.transpose(x), y))

    def model_fn(features, labels, mode):
        assert features.shape == [cases.NUM_FEATURES, BATCH // 2]
        optimizer = V1.train.GradientDescentOptimizer(RATE)
        return cases.make_softmax_model_fn(lambda: optimizer)(tf.transpose(features), labels, mode)

    model = make_model(tmp_path, KINDS.SLICED, strategy, loop, model_fn, batch_axis=[1, 0])
    model.train(Calls(transposed), max_steps=cases.NUM_STEPS)
    check_matches(model)


@LOOPS
def test_training_ends_with_the_first_shard_that_has_no_batch(loop, tmp_path):
    def uneven(params, input_context):
        count = [70, 100][input_context.input_pipeline_id]
        return examples().take(count).batch(params["batch_size"], drop_remainder=True)

    model = make_model(tmp_path, KINDS.PER_SHARD_V1, "mirrored_x2", loop)
    model.train(Calls(uneven))
    assert model.train_result.reason == "end of input"
    assert model.train_result.global_step == 70 // (BATCH // 2)


@LOOPS
def test_every_shard_resumes_where_it_stood(loop, tmp_path):
    def shuffled(params, input_context):
        seed = input_context.input_pipeline_id
        shard = shards(params, input_context).unbatch()
        return shard.shuffle(50, seed=seed).repeat().batch(params["batch_size"])

    def train(path, *stops):
        for stop in stops:
            model = make_model(path, KINDS.PER_SHARD_V1, "mirrored_x2", loop)
            model.train(Calls(shuffled), max_steps=stop)
        return cases.trained_weights(model, ["kernel", "bias"])

    unbroken = train(tmp_path / "unbroken", 20)
    broken = train(tmp_path / "broken", 7, 20)
    for name, value in unbroken.items():
        np.testing.assert_array_equal(broken[name], value, err_msg=name)
    assert checkpoint_steps(str(tmp_path / "broken")) == [0, 7, 20]


def test_shards_may_be_bare_tensors(tmp_path):
    def tensors(params, input_context):
        half = slice(input_context.input_pipeline_id * 6, input_context.input_pipeline_id * 6 + 6)
        return tf.constant(cases.FEATURES[half]), tf.constant(cases.LABELS[half])

    model = make_model(tmp_path, KINDS.PER_SHARD_V1, "mirrored_x2")
    model.train(Calls(tensors), steps=1)
    check_matches(model, 1)


# Evaluation and prediction.


def counting_model_fn(features, labels, mode, params):
    """Predicts what it is given; the metrics count and sum the examples."""
    w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
    numbers = tf.cast(features["x"], tf.float32)
    loss = w * tf.reduce_mean(numbers)
    train_op = None
    if mode == est.ModeKeys.TRAIN:
        train_op = V1.train.get_global_step().assign_add(1)
    metrics = None
    if mode == est.ModeKeys.EVAL:
        metrics = {
            "mean": V1.metrics.mean(numbers),
            "count": V1.metrics.mean(tf.cast(tf.size(labels), tf.float32)),
        }
    return est.EstimatorSpec(
        mode,
        predictions={"x": numbers, "size": tf.fill(tf.shape(numbers), params["batch_size"])},
        loss=loss,
        train_op=train_op,
        eval_metric_ops=metrics,
    )


def make_numbers(count):
    def make(params, input_context):
        numbers = tf.data.Dataset.range(count).map(lambda i: ({"x": i}, i))
        return numbers.batch(params["batch_size"])

    return make


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    path = tmp_path_factory.mktemp("counted")
    make_model(path, True, "no_strategy", model_fn=counting_model_fn).train(
        Calls(make_numbers(100)), steps=1
    )
    return path


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("for_training", "for_eval"),
    [
        (KINDS.PER_SHARD_V1, KINDS.PER_HOST_V1),
        (KINDS.BROADCAST, KINDS.SLICED),
        (KINDS.PER_HOST_V2, KINDS.SLICED),
    ],
)
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "mirrored_x3"])
def test_every_example_is_evaluated_and_predicted_once(strategy, for_training, for_eval, counted):
    replicas = num_replicas_of(strategy)
    sizes = [BATCH] if for_eval == KINDS.SLICED else [BATCH // replicas]
    with make_model(
        counted,
        for_training,
        strategy,
        model_fn=counting_model_fn,
        eval_batch_size=BATCH,
        predict_batch_size=BATCH,
        tpu_config={"eval_training_input_configuration": for_eval},
    ) as model:
        for count in (1, 7, 12, 100):
            input_fn = Calls(make_numbers(count))
            assert model.evaluate(input_fn)["mean"] == pytest.approx((count - 1) / 2, abs=1e-4)
            assert input_fn.batch_sizes == sizes
            input_fn = Calls(make_numbers(count))
            rows = list(model.predict(input_fn))
            assert [row["x"] for row in rows] == list(range(count))
            assert {int(row["size"]) for row in rows} == {BATCH // replicas}
            assert input_fn.batch_sizes == sizes


def test_an_evaluation_cuts_along_the_batch_axis(counted):
    def model_fn(features, labels, mode, params):
        if mode == est.ModeKeys.EVAL:
            assert features["x"].shape.as_list() == [1, None]
        return counting_model_fn({"x": features["x"][0]}, labels, mode, params)

    def transposed(params, input_context):
        data = make_numbers(100)(params, input_context)
        return data.map(lambda x, y: ({"x": x["x"][tf.newaxis]}, y))

    model = make_model(
        counted,
        True,
        "mirrored_x2",
        model_fn=model_fn,
        eval_batch_size=BATCH,
        batch_axis=[1, 0],
        tpu_config={"eval_training_input_configuration": KINDS.SLICED},
    )
    for each in (model, est.add_metrics(model, lambda labels: {"last": V1.metrics.mean(labels)})):
        results = each.evaluate(Calls(transposed))
        assert results["mean"] == pytest.approx(49.5, abs=1e-4)
        assert results["count"] == pytest.approx(100 / 18, abs=1e-4)  # 8 x 2 parts of 6, 2 of 2.
    assert results["last"] == pytest.approx(49.5, abs=1e-4)


# host_call.


@WHERE
def test_host_call_runs_in_each_nth_step(strategy, loop, tmp_path):
    every = 3
    noted = []

    def note(step, x):
        noted.append((int(step[0]), x.shape[0]))

    def model_fn(features, labels, mode):
        step = V1.train.get_global_step()
        before = tf.reshape(step, [1])
        spec = cases.make_softmax_model_fn(lambda: V1.train.GradientDescentOptimizer(RATE))(
            features, labels, mode
        )
        return est.tpu.TPUEstimatorSpec(
            mode,
            loss=spec.loss,
            train_op=spec.train_op,
            host_call=(
                lambda step, x: [tf.numpy_function(note, [step, x], [])],
                {"step": before, "x": features},
            ),
        )

    config = {"experimental_host_call_every_n_steps": every}
    model = make_model(tmp_path, True, strategy, loop, model_fn, tpu_config=config)
    model.train(Calls(whole_batches), max_steps=10)
    # It sees the step before, and the examples of all replicas.
    due = [step - 1 for step in range(1, 11) if step % every == 0]
    assert noted == [(step, BATCH) for step in due]


@LOOPS
def test_summaries_of_a_host_call_are_written_in_each_nth_step(loop, tmp_path):
    def host_fn(step):
        with (
            tf.summary.create_file_writer(str(tmp_path / "host")).as_default(),
            tf.summary.record_if(True),
        ):
            tf.summary.scalar("twice", 2 * step[0], step=step[0])
            return V1.summary.all_v2_summary_ops()

    def model_fn(features, labels, mode):
        before = tf.reshape(V1.train.get_global_step(), [1])
        spec = cases.make_softmax_model_fn(lambda: V1.train.GradientDescentOptimizer(RATE))(
            features, labels, mode
        )
        return est.tpu.TPUEstimatorSpec(
            mode, loss=spec.loss, train_op=spec.train_op, host_call=(host_fn, [before])
        )

    config = {"experimental_host_call_every_n_steps": 4}
    model = make_model(tmp_path / "model", True, "no_strategy", loop, model_fn, tpu_config=config)
    model.train(Calls(whole_batches), max_steps=10)
    written = [
        (event.step, float(tf.make_ndarray(value.tensor)))
        for path in (tmp_path / "host").iterdir()
        for event in V1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    assert written == [(3, 6.0), (7, 14.0)]


# num_shards.


@pytest.mark.parametrize(("num_shards", "is_said"), [(None, False), (1, False), (8, True)])
def test_num_shards_on_one_replica_is_one_line_and_no_warning(
    num_shards, is_said, tmp_path, caplog
):
    with caplog.at_level(logging.INFO, "estimator"):
        make_model(tmp_path, True, "no_strategy", tpu_config={"num_shards": num_shards})
    said = [record.levelname for record in caplog.records if "num_shards" in record.getMessage()]
    assert said == ["INFO"] * is_said


def test_num_shards_that_fit_say_nothing(tmp_path, caplog):
    make_model(tmp_path, True, "mirrored_x2", tpu_config={"num_shards": 2})
    assert "num_shards" not in caplog.text
