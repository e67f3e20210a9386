"""`nan_policy="skip"`: random variables and steps, some bad, against the same in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.program import skipped_steps
from estimator.runtime import local
from estimator.runtime import strategy as strategies

V1 = tf.compat.v1
QUIET = {"save_summary_steps": None, "log_step_count_steps": None}
DTYPES = ["float16", "bfloat16", "float32", "float64", "int32", "int64", "bool"]
# Finite, but their squares are not.
LARGE = {"float16": 3e4, "bfloat16": 1e38, "float32": 1e38, "float64": 1e300}


@pytest.fixture(params=["gpu", "cpu"])
def on_gpu(request, monkeypatch):
    """As on a GPU, if it is said that there is one: the variables are joined, a few at a time."""
    if request.param == "gpu":
        monkeypatch.setattr(local, "count_gpus", lambda: 1)
        monkeypatch.setattr(strategies, "_check_gpus", lambda strategy: None)
        monkeypatch.setattr(skipped_steps, "_MAX_JOINED", 20)


def numpy_type(dtype):
    return tf.as_dtype(dtype).as_numpy_dtype


def make_variables(random):
    """Name -> the value before training."""
    values = {}
    for i in range(random.integers(1, 9)):
        dtype = random.choice(DTYPES)
        shape = random.integers(0, 5, size=random.integers(0, 3))
        value = random.integers(0, 5, size=shape)
        if dtype in LARGE and random.random() < 0.3:
            value = np.full(shape, LARGE[dtype])
        values[f"v{i}"] = np.asarray(value).astype(numpy_type(dtype))
    return values


def make_steps(random, values, num_steps):
    """What each step sets the variables to, its loss, and whether it is good."""
    steps = []
    for _ in range(num_steps):
        step = {"loss": np.float32(random.integers(9))}
        for name, value in values.items():
            step[name] = np.asarray(random.integers(0, 5, size=value.shape)).astype(value.dtype)
        if random.random() < 0.3:
            name = random.choice(list(step))
            if step[name].dtype.kind not in "ib" and step[name].size:
                bad = np.array(step[name])
                bad.flat[random.integers(bad.size)] = random.choice([np.nan, np.inf, -np.inf])
                step[name] = bad
        # A variable keeps its value in some steps, which may be the large one.
        step["keeps"] = random.random(len(values)) < 0.4
        steps.append(step)
    return steps


def expected(values, steps):
    """The variables after the steps, and how many steps were bad."""
    values, num_bad = dict(values), 0
    for step in steps:
        new = {
            name: value if keeps else step[name]
            for (name, value), keeps in zip(values.items(), step["keeps"], strict=True)
        }
        floats = [v for v in [step["loss"], *new.values()] if v.dtype.kind not in "ib"]
        if all(np.isfinite(v.astype(np.float64)).all() for v in floats):
            values = new
        else:
            num_bad += 1
    return values, num_bad


def make_variable(name, value, has_shape):
    """A variable whose shape TensorFlow knows when it builds the graph, or does not know."""
    if has_shape:
        return V1.get_variable(name, initializer=tf.constant(value))
    initial = V1.placeholder_with_default(value, None)
    return V1.get_variable(name, initializer=initial, validate_shape=False)


def make_model_fn(values):
    def model_fn(features, mode):
        writes = []
        for i, (name, value) in enumerate(values.items()):
            variable = make_variable(name, value, has_shape=i % 3 != 2)
            new = tf.where(features["keeps"][i], variable.read_value(), features[name])
            writes.append(variable.assign(new, read_value=False))
        with tf.control_dependencies(writes):
            train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=features["loss"], train_op=train_op)

    return model_fn


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("seed", range(6))
def test_only_good_steps_change_the_variables(seed, tmp_path):
    random = np.random.default_rng(seed)
    values = make_variables(random)
    steps = make_steps(random, values, num_steps=9)
    columns = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
    loop = int(random.choice([1, 4]))
    config = est.RunConfig(str(tmp_path), nan_policy="skip", iterations_per_loop=loop, **QUIET)
    model = est.Estimator(make_model_fn(values), config=config)
    result = model.train(lambda: tf.data.Dataset.from_tensor_slices(columns)).train_result
    after, num_bad = expected(values, steps)
    assert (result.global_step, result.skipped_steps) == (9, num_bad)
    for name, value in after.items():
        found = model.get_variable_value(name)
        np.testing.assert_array_equal(found.astype(value.dtype), value, name)


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", LARGE)
def test_one_bad_number_among_many_is_found(dtype, bad, tmp_path):
    values = {name: np.zeros([4, 4], numpy_type(dtype)) for name in ("first", "second")}
    step = {name: np.ones([4, 4], numpy_type(dtype)) for name in values}
    bad_step = {**step, "second": np.array(step["second"])}
    bad_step["second"][1, 2] = bad
    others = {"loss": np.float32(1), "keeps": np.zeros(2, bool)}
    steps = [{**one, **others} for one in (step, bad_step)]
    columns = {name: np.stack([one[name] for one in steps]) for name in steps[0]}
    config = est.RunConfig(str(tmp_path), nan_policy="skip", iterations_per_loop=2, **QUIET)
    model = est.Estimator(make_model_fn(values), config=config)
    model.train(lambda: tf.data.Dataset.from_tensor_slices(columns))
    assert model.train_result.skipped_steps == 1
    for name in values:
        assert model.get_variable_value(name).astype(float).tolist() == np.ones([4, 4]).tolist()


def test_a_variable_without_elements_is_not_bad(tmp_path):
    def model_fn(features, mode):
        empty = make_variable("w", np.zeros([0, 3], np.float32), has_shape=False)
        with tf.control_dependencies([empty.assign(empty.read_value() + 1, read_value=False)]):
            train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=features, train_op=train_op)

    config = est.RunConfig(str(tmp_path), nan_policy="skip", **QUIET)
    model = est.Estimator(model_fn, config=config)
    model.train(lambda: tf.data.Dataset.from_tensor_slices([1.0, 2.0]))
    assert model.train_result.skipped_steps == 0


def test_variables_of_a_gpu_are_joined_up_to_a_size(monkeypatch):
    monkeypatch.setattr(skipped_steps, "_MAX_JOINED", 20)
    with tf.Graph().as_default():
        shapes = {"a": [3, 3], "b": [11], "c": [], "d": [2, 10], "e": [50], "f": [4]}
        made = [V1.get_variable(name, shape) for name, shape in shapes.items()]
        made.append(V1.get_variable("counted", [4], tf.int32))
        with tf.device("/cpu:0"):
            made.append(V1.get_variable("host", []))
        there = list(skipped_steps._joined(made, is_on_gpu=True))
        elsewhere = list(skipped_steps._joined(made, is_on_gpu=False))
    names = sorted("".join(one.op.name[0] for one in joined) for joined in there)
    assert names == ["ab", "c", "c", "d", "e", "f", "h"]
    assert elsewhere == [[one] for one in made]
