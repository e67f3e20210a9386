"""TPUConfig, tpu.RunConfig, InputPipelineConfig, CrossShardOptimizer; TPUEstimator on a CPU."""

import os

import numpy as np
import pytest

from tests.contract.names import (
    EVAL,
    PREDICT,
    TRAIN,
    CrossShardOptimizer,
    est,
    scalars,
    tf,
    tf_config,
    v1,
    v1est,
)

tpu = v1est.tpu
Pipeline = tpu.InputPipelineConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PER_SHARD_V1", 1),
        ("PER_HOST_V1", 2),
        ("PER_HOST_V2", 3),
        ("BROADCAST", 4),
        ("SLICED", 5),
    ],
)
def test_input_pipeline_config(name, value):
    assert getattr(Pipeline, name) == value


DEFAULTS = {
    "iterations_per_loop": 2,
    "num_shards": None,
    "num_cores_per_replica": None,
    "per_host_input_for_training": Pipeline.PER_HOST_V1,
    "tpu_job_name": None,
    "initial_infeed_sleep_secs": None,
    "input_partition_dims": None,
    "eval_training_input_configuration": Pipeline.PER_HOST_V1,
    "experimental_host_call_every_n_steps": 1,
    "experimental_allow_per_host_v2_parallel_get_next": False,
    "experimental_feed_hook": None,
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_default_of_tpu_config(name):
    assert getattr(tpu.TPUConfig(), name) == DEFAULTS[name]


def test_tpu_config_is_a_named_tuple():
    config = tpu.TPUConfig(5, 8)
    assert config._fields == tuple(DEFAULTS)
    assert (config[0], config[1], len(config)) == (5, 8, 11)
    assert config._asdict()["num_shards"] == 8


def test_replacing_in_tpu_config():
    assert tpu.TPUConfig(num_shards=8)._replace(iterations_per_loop=7)[:2] == (7, 8)


@pytest.mark.parametrize(
    ("given", "kept"), [(True, Pipeline.PER_HOST_V1), (False, Pipeline.PER_SHARD_V1), (3, 3)]
)
def test_old_values_of_per_host_input(given, kept):
    config = tpu.TPUConfig(per_host_input_for_training=given)
    assert config.per_host_input_for_training == kept


WRONG = {
    "iterations_per_loop": 0,
    "num_shards": 0,
    "num_cores_per_replica": 3,
    "eval_training_input_configuration": Pipeline.PER_HOST_V2,
    "initial_infeed_sleep_secs": -1,
    "input_partition_dims": [[1], [1], [1]],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_field_of_tpu_config_is_a_value_error(name):
    with pytest.raises(ValueError):
        tpu.TPUConfig(**{name: WRONG[name]})


def test_job_name_of_tf_config(monkeypatch):
    cluster = {"worker": ["a:1"], "coordinator": ["b:1"]}
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster, "coordinator", 0, tpu_job_name="mine"))
    assert tpu.TPUConfig(tpu_job_name="given").tpu_job_name == "given"


# --- tpu.RunConfig -------------------------------------------------------------------------------


def test_run_config_is_one_too():
    assert issubclass(tpu.RunConfig, est.RunConfig)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("master", ""),
        ("evaluation_master", ""),
        ("save_checkpoints_secs", 600),
        ("task_type", "worker"),
        ("is_chief", True),
        ("num_worker_replicas", 1),
    ],
)
def test_default_of_run_config(name, default):
    assert getattr(tpu.RunConfig(), name) == default


@pytest.mark.only_2_15("cluster of a config")
def test_default_cluster_of_run_config():
    assert tpu.RunConfig().cluster is None


@pytest.mark.only_here("cluster of a config")
def test_cluster_of_run_config_is_that_of_tf_config():
    assert tpu.RunConfig().cluster == est.Cluster()


def test_default_tpu_config_of_run_config():
    assert tpu.RunConfig().tpu_config == tpu.TPUConfig()


def test_run_config_by_position():
    config = tpu.RunConfig(tpu.TPUConfig(3), "eval", "train")
    assert config.tpu_config.iterations_per_loop == 3
    assert (config.evaluation_master, config.master) == ("eval", "train")


def test_master_is_that_of_evaluation_too():
    assert tpu.RunConfig(master="grpc://a:1").evaluation_master == "grpc://a:1"


@pytest.mark.parametrize("name", ["model_dir", "tf_random_seed", "save_checkpoints_steps"])
def test_run_config_takes_the_fields_of_the_other(name):
    value = "/a" if name == "model_dir" else 7
    assert getattr(tpu.RunConfig(**{name: value}), name) == value


def test_replacing_keeps_the_tpu_config():
    config = tpu.RunConfig(tpu_config=tpu.TPUConfig(9)).replace(model_dir="/a")
    assert isinstance(config, tpu.RunConfig)
    assert (config.tpu_config.iterations_per_loop, config.model_dir) == (9, "/a")


# --- CrossShardOptimizer -------------------------------------------------------------------------


def sgd():
    return v1.train.GradientDescentOptimizer(0.5)


def test_cross_shard_optimizer_is_an_optimizer():
    assert isinstance(CrossShardOptimizer(sgd()), v1.train.Optimizer)


def test_default_name_of_cross_shard_optimizer():
    assert CrossShardOptimizer(sgd()).get_name() == "CrossShardOptimizer"


def test_cross_shard_optimizer_takes_another_name():
    assert CrossShardOptimizer(sgd(), name="mine").get_name() == "mine"


@pytest.mark.parametrize("reduction", ["none", 1], ids=str)
def test_wrong_reduction_is_a_value_error(reduction):
    with pytest.raises(ValueError):
        CrossShardOptimizer(sgd(), reduction=reduction)


@pytest.mark.parametrize("name", ["MEAN", "SUM"])
def test_reduction(name):
    reduction = getattr(v1.losses.Reduction, name)
    assert isinstance(CrossShardOptimizer(sgd(), reduction), v1.train.Optimizer)


def test_cross_shard_optimizer_computes_gradients():
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", [], initializer=v1.constant_initializer(3.0))
        pairs = CrossShardOptimizer(sgd()).compute_gradients(w * w)
        session.run(v1.global_variables_initializer())
        assert session.run(pairs[0][0]) == 6
        assert pairs[0][1] is w


def test_slots_are_those_of_the_optimizer_inside():
    inside = v1.train.MomentumOptimizer(0.1, 0.9)
    wrapped = CrossShardOptimizer(inside)
    with tf.Graph().as_default():
        w = v1.get_variable("w", [])
        wrapped.minimize(w * w)
        assert wrapped.get_slot_names() == inside.get_slot_names() == ["momentum"]
        assert wrapped.get_slot(w, "momentum") is inside.get_slot(w, "momentum") is not None


# --- TPUEstimator with use_tpu=False -------------------------------------------------------------

SEEN = []


def metric_fn(x, twice):
    return {"mean": v1.metrics.mean(x), "twice": v1.metrics.mean(twice)}


def model_fn(features, labels, mode, params):
    SEEN.append({"mode": mode, "params": dict(params), "shape": features["x"].shape.as_list()})
    x = features["x"]
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(w - x)) / 2
    step = v1.train.get_global_step()
    return tpu.TPUEstimatorSpec(
        mode,
        predictions={"y": w * x, "x": x},
        loss=loss,
        train_op=v1.train.GradientDescentOptimizer(0.25).minimize(loss, step),
        eval_metrics=(metric_fn, {"x": x, "twice": x * 2}),
    )


INPUT_PARAMS = []


def input_fn(params):
    INPUT_PARAMS.append(dict(params))
    data = tf.data.Dataset.from_tensor_slices({"x": np.float32([0, 1, 2, 3])})
    return data.batch(params["batch_size"], drop_remainder=True)


def make(path, fn=model_fn, **arguments):
    config = tpu.RunConfig(
        model_dir=os.fspath(path), tpu_config=tpu.TPUConfig(iterations_per_loop=2)
    )
    sizes = {"train_batch_size": 4, "eval_batch_size": 2, "predict_batch_size": 2}
    given = {"use_tpu": False, **sizes, **arguments}
    return tpu.TPUEstimator(model_fn=fn, config=config, **given)


class Run:
    def __init__(self, path):
        SEEN.clear()
        INPUT_PARAMS.clear()
        self.estimator = make(path, params={"a": 1}, export_to_tpu=False)
        repeated = lambda params: input_fn(params).repeat()  # noqa: E731
        self.returned = self.estimator.train(repeated, max_steps=4)
        self.results = self.estimator.evaluate(input_fn, steps=2)
        self.predictions = list(self.estimator.predict(input_fn))
        self.seen = {entry["mode"]: entry for entry in SEEN}
        self.input_params = dict(zip((TRAIN, EVAL, PREDICT), INPUT_PARAMS, strict=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("run"))


def test_tpu_estimator_is_an_estimator(run):
    assert isinstance(run.estimator, v1est.Estimator)
    assert run.returned is run.estimator


@pytest.mark.parametrize(("mode", "size"), [(TRAIN, 4), (EVAL, 2), (PREDICT, 2)])
@pytest.mark.parametrize("function", ["model_fn", "input_fn"])
def test_batch_size_in_the_params(run, mode, size, function):
    params = run.seen[mode]["params"] if function == "model_fn" else run.input_params[mode]
    assert params["batch_size"] == size


@pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
def test_params_of_the_program_are_passed_on(run, mode):
    assert run.seen[mode]["params"]["a"] == run.input_params[mode]["a"] == 1


@pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
def test_use_tpu_in_the_params_is_false(run, mode):
    assert not run.seen[mode]["params"]["use_tpu"]


@pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
def test_use_tpu_is_not_in_the_params_of_the_input(run, mode):
    assert "use_tpu" not in run.input_params[mode]


@pytest.mark.only_2_15("context in the params")
@pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
def test_context_is_not_in_the_params(run, mode):
    assert "context" not in run.seen[mode]["params"]
    assert "context" not in run.input_params[mode]


@pytest.mark.only_here("context in the params")
@pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
def test_context_in_the_params_says_how_many_hosts_there_are(run, mode):
    assert run.seen[mode]["params"]["context"].num_hosts == 1
    assert run.input_params[mode]["context"].num_hosts == 1


@pytest.mark.only_2_15("`use_tpu=True` without a TPU")
def test_what_needs_no_tpu_works_without_one(tmp_path):
    make(tmp_path).train(lambda params: input_fn(params).repeat(), max_steps=4)
    model = make(tmp_path, use_tpu=True, eval_on_tpu=False)
    assert model.evaluate(input_fn, steps=2)["global_step"] == 4


@pytest.mark.only_here("`use_tpu=True` without a TPU")
def test_a_tpu_that_is_not_there_is_noticed_at_once(tmp_path):
    with pytest.raises(ValueError, match="leave `use_tpu` out"):
        make(tmp_path, use_tpu=True, eval_on_tpu=False)


def without_scaffold(features, labels, mode, params):
    return model_fn(features, labels, mode, params)._replace(scaffold_fn=lambda: None)


@pytest.mark.only_2_15("a scaffold_fn that returns None")
def test_none_of_a_scaffold_fn_is_no_scaffold(tmp_path):
    model = make(tmp_path, without_scaffold)
    model.train(lambda params: input_fn(params).repeat(), max_steps=2)
    assert model.get_variable_value("global_step") == 2


@pytest.mark.only_here("a scaffold_fn that returns None")
def test_none_of_a_scaffold_fn_is_an_error(tmp_path):
    model = make(tmp_path, without_scaffold)
    with pytest.raises(TypeError, match="scaffold_fn"):
        model.train(lambda params: input_fn(params).repeat(), max_steps=2)


def test_without_a_batch_size_the_params_of_the_input_are_the_programs(tmp_path):
    seen = []

    def batches(params):
        seen.append(dict(params))
        data = tf.data.Dataset.from_tensor_slices({"x": np.float32([0, 1, 2, 3])})
        return data.batch(params["batch_size"] if params else 1)

    model = make(tmp_path, predict_batch_size=None)
    model.train(batches, steps=1)
    assert len(list(model.predict(batches))) == 4
    assert seen[-1] == {}


@pytest.mark.parametrize(("mode", "size"), [(TRAIN, 4), (EVAL, 2)])
def test_shapes_are_static(run, mode, size):
    assert run.seen[mode]["shape"] == [size]


def test_training_counts_steps(run):
    assert run.estimator.get_variable_value("global_step") == 4
    expected = 1.5 * (1 - 0.75**4)
    assert run.estimator.get_variable_value("w") == pytest.approx(expected)


@pytest.mark.parametrize(("name", "value"), [("mean", 1.5), ("twice", 3.0), ("global_step", 4)])
def test_result_of_the_evaluation(run, name, value):
    assert run.results[name] == pytest.approx(value)


def test_keys_of_the_evaluation(run):
    assert set(run.results) == {"mean", "twice", "loss", "global_step"}


def test_evaluation_is_in_the_events(run):
    assert scalars(run.estimator.eval_dir(), "twice") == {4: 3.0}


def test_predictions(run):
    assert [row["x"] for row in run.predictions] == [0, 1, 2, 3]
    w = run.estimator.get_variable_value("w")
    assert run.predictions[3]["y"] == pytest.approx(3 * w)


def test_model_fn_of_tpu_estimator_may_return_an_estimator_spec(tmp_path):
    def plain(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op)

    made = make(tmp_path, plain).train(input_fn, max_steps=1)
    assert made.get_variable_value("global_step") == 1


def test_eval_metrics_may_be_a_list(tmp_path):
    def listed(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return spec._replace(eval_metrics=(metric_fn, [features["x"], features["x"] * 2]))

    made = make(tmp_path, listed)
    made.train(input_fn, max_steps=1)
    assert made.evaluate(input_fn, steps=2)["twice"] == pytest.approx(3)


class Hooked(v1.train.SessionRunHook):
    def __init__(self):
        self.runs = 0

    def after_run(self, run_context, run_values):
        self.runs += 1


def test_hooks_of_a_tpu_spec_are_called(tmp_path):
    hooks = {name: Hooked() for name in ("training", "evaluation", "prediction")}

    def hooked(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return spec._replace(**{f"{name}_hooks": (hook,) for name, hook in hooks.items()})

    made = make(tmp_path, hooked).train(input_fn, max_steps=1)
    made.evaluate(input_fn, steps=2)
    list(made.predict(input_fn))
    assert {name: hook.runs > 0 for name, hook in hooks.items()} == dict.fromkeys(hooks, True)


RESERVED = ["batch_size", "context"]


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_params_are_a_value_error(tmp_path, name):
    with pytest.raises(ValueError):
        make(tmp_path, params={name: 1})


def tpu_estimator_of(config, path):
    return tpu.TPUEstimator(model_fn, os.fspath(path), config, use_tpu=False, train_batch_size=4)


def test_wrong_config_of_a_tpu_estimator_is_a_value_error(tmp_path):
    with pytest.raises(ValueError):
        tpu_estimator_of("config", tmp_path)


@pytest.mark.only_2_15("config of a TPUEstimator")
@pytest.mark.parametrize("config", [est.RunConfig(), None], ids=["RunConfig", "None"])
def test_tpu_estimator_needs_a_config_of_its_own(config, tmp_path):
    with pytest.raises(ValueError):
        tpu_estimator_of(config, tmp_path)


@pytest.mark.only_here("config of a TPUEstimator")
@pytest.mark.parametrize("config", [est.RunConfig(), None], ids=["RunConfig", "None"])
def test_tpu_estimator_takes_any_config(config, tmp_path):
    made = tpu_estimator_of(config, tmp_path).train(input_fn, max_steps=1)
    assert made.get_variable_value("global_step") == 1


def test_without_a_tpu_batch_sizes_need_not_be_given(tmp_path):
    made = tpu.TPUEstimator(
        model_fn=model_fn, config=tpu.RunConfig(model_dir=os.fspath(tmp_path)), use_tpu=False
    )

    def fixed(params):
        assert "batch_size" not in params or params["batch_size"] is None
        return tf.data.Dataset.from_tensors({"x": np.float32([1, 2])})

    assert made.train(fixed, max_steps=1).get_variable_value("global_step") == 1


def test_positional_arguments(tmp_path):
    config = tpu.RunConfig()
    made = tpu.TPUEstimator(model_fn, os.fspath(tmp_path), config, {"a": 2}, False, 4)
    assert (made.model_dir, made.params["a"]) == (os.fspath(tmp_path), 2)


def test_export_of_a_tpu_estimator(run, tmp_path):
    def raw():
        x = v1.placeholder(tf.float32, [None])
        return est.export.ServingInputReceiver({"x": x}, {"x": x})

    path = run.estimator.export_saved_model(os.fspath(tmp_path), raw)
    served = tf.saved_model.load(os.fsdecode(path)).signatures["serving_default"]
    w = run.estimator.get_variable_value("w")
    assert served(tf.constant([2.0]))["y"].numpy() == pytest.approx([2 * w])


def test_one_replica_takes_a_sliced_batch_of_any_size(tmp_path):
    sliced = tpu.TPUConfig(per_host_input_for_training=Pipeline.SLICED)
    config = tpu.RunConfig(model_dir=os.fspath(tmp_path), tpu_config=sliced)
    made = tpu.TPUEstimator(model_fn, None, config, use_tpu=False, train_batch_size=4)
    data = {"x": np.float32([0, 1, 2, 3])}
    made.train(lambda params: tf.data.Dataset.from_tensor_slices(data).batch(4), max_steps=1)
    assert made.get_variable_value("global_step") == 1


@pytest.mark.parametrize("size", [4.0, np.array(4)], ids=str)
def test_a_batch_size_may_be_a_whole_float_or_an_array_of_one_number(tmp_path, size):
    seen = []

    def input_fn(params):
        seen.append(params["batch_size"])
        return tf.data.Dataset.from_tensors({"x": np.float32([0, 1, 2, 3])}).repeat()

    config = tpu.RunConfig(model_dir=os.fspath(tmp_path))
    made = tpu.TPUEstimator(model_fn, None, config, use_tpu=False, train_batch_size=size)
    made.train(input_fn, max_steps=2.0)
    assert made.get_variable_value("global_step") == 2
    assert seen == [4]


def optional_metric_fn(x, twice=None, other=None):
    metrics = {"x": x, "twice": twice, "other": other}
    return {name: v1.metrics.mean(value) for name, value in metrics.items() if value is not None}


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_tensor_of_the_metrics_and_of_the_host_call_may_be_none(as_dict, tmp_path):
    called = []

    def host_fn(step, other=None):
        called.append(other)
        return [tf.identity(step)]

    def fn(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        x = features["x"]
        step = tf.reshape(v1.train.get_global_step(), [1])
        tensors = {"x": x, "twice": None, "other": 3 * x} if as_dict else [x, None, 3 * x]
        given = {"step": step, "other": None} if as_dict else [step, None]
        return tpu.TPUEstimatorSpec(
            mode,
            loss=spec.loss,
            train_op=spec.train_op,
            eval_metrics=(optional_metric_fn, tensors),
            host_call=(host_fn, given),
        )

    trained = make(tmp_path, fn).train(input_fn, steps=1)
    results = trained.evaluate(input_fn, steps=2)
    assert (results["x"], results["other"], "twice" in results) == (1.5, 4.5, False)
    assert set(called) == {None}
