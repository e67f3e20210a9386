"""The session of an input is used again for an equal graph, and never changes what is read."""

import itertools
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator as est

Dataset = tf.data.Dataset


def model_fn(features, mode):
    if isinstance(features, dict):
        features = {key: value for key, value in features.items() if value is not None}
    return est.EstimatorSpec(mode, predictions=features, loss=tf.zeros([]))


@pytest.fixture
def model(tmp_path):
    with est.Estimator(model_fn, str(tmp_path / "model")) as model:
        yield model


@pytest.fixture
def num_opened(monkeypatch):
    """Counts the sessions that are opened."""
    opened = []
    make = tf.compat.v1.Session.__init__

    def counted(self, *args, **kwargs):
        opened.append(self)
        make(self, *args, **kwargs)

    monkeypatch.setattr(tf.compat.v1.Session, "__init__", counted)
    return lambda: len(opened)


def read(model, input_fn):
    return [np.asarray(row).tolist() for row in model.predict(input_fn)]


def eagerly(input_fn):
    return [np.asarray(row).tolist() for row in input_fn().unbatch().as_numpy_iterator()]


def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("1\n2\n3\n")
    return Dataset.range(2).flat_map(lambda _: tf.data.TextLineDataset(str(path)))


def records(tmp_path):
    path = str(tmp_path / "records")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(4):
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
            features = tf.train.Features(feature={"x": feature})
            writer.write(tf.train.Example(features=features).SerializeToString())
    spec = {"x": tf.io.FixedLenFeature([], tf.int64)}
    return tf.data.TFRecordDataset(path).map(lambda s: tf.io.parse_single_example(s, spec)["x"])


# Of each, another call goes on with the session of the first.
KEPT = {
    "range": lambda _: Dataset.range(7),
    "arrays": lambda _: Dataset.from_tensor_slices(np.arange(12.0).reshape(6, 2)),
    "a map": lambda _: Dataset.range(5).map(lambda x: x * 2),
    "several functions": lambda _: (
        Dataset.range(9).filter(lambda a: a > 3).map(lambda b: b + 1).map(lambda c: c * 3)
    ),
    "a function within a function": lambda _: Dataset.range(3).interleave(
        lambda x: Dataset.range(2).map(lambda y: x * 10 + y)
    ),
    "branches and loops": lambda _: Dataset.range(4).map(
        lambda x: tf.while_loop(
            lambda n: n < 9, lambda n: tf.cond(n > 4, lambda: n * 2, lambda: n + 1), [x]
        )[0]
    ),
    "parallel": lambda _: Dataset.range(20).map(lambda x: -x, tf.data.AUTOTUNE).prefetch(2),
    "shuffled": lambda _: Dataset.range(9).shuffle(9, seed=3).repeat(2),
    "cached": lambda _: Dataset.range(5).map(lambda x: x + 1).cache().repeat(2),
    "text lines": lines,
    "records": records,
    "zipped": lambda _: Dataset.zip((Dataset.range(3), Dataset.range(3))).map(lambda x, y: x + y),
}


@pytest.mark.parametrize("kind", KEPT)
def test_an_equal_input_is_read_again_in_the_same_session(tmp_path, model, num_opened, kind):
    def input_fn():
        return KEPT[kind](tmp_path).batch(2)

    first = read(model, input_fn)
    before = num_opened()
    for _ in range(12):  # Functions get numbers of more digits, which cost a session.
        assert read(model, input_fn) == first
    assert num_opened() - before <= 2
    if kind != "shuffled":
        assert first == eagerly(input_fn)


def numbers_of(values):
    return lambda: Dataset.from_tensor_slices(np.array(values)).batch(2)


def scaled_by(factor):
    return lambda: Dataset.range(4).map(lambda x: x * factor).batch(2)


# Inputs that look alike, and are not.
OTHERS = {
    "other numbers": [numbers_of([1, 2, 3]), numbers_of([1, 2, 4])],
    "another type": [numbers_of([1, 2]), numbers_of([1.0, 2.0])],
    "another constant in a function": [scaled_by(2), scaled_by(3)],
    "functions in another order": [
        lambda: Dataset.range(4).map(lambda x: x + 1).map(lambda x: x * 2).batch(2),
        lambda: Dataset.range(4).map(lambda x: x * 2).map(lambda x: x + 1).batch(2),
    ],
    "another batch size": [
        lambda: Dataset.range(4).batch(2),
        lambda: Dataset.range(4).batch(3),
    ],
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_input_is_read_as_it_is(model, kind):
    for _ in range(3):
        for input_fn in OTHERS[kind]:
            assert read(model, input_fn) == eagerly(input_fn)


def test_evaluations_and_predictions_of_one_input_take_what_they_need(model):
    def input_fn():
        x = np.arange(6.0)
        return Dataset.from_tensor_slices((x, -x)).batch(2)

    def labels_fn(features, labels, mode):
        metrics = None if labels is None else {"sum": tf.compat.v1.metrics.mean(labels)}
        loss = tf.zeros([])
        return est.EstimatorSpec(mode, predictions=features, loss=loss, eval_metric_ops=metrics)

    with est.Estimator(labels_fn, model.model_dir) as both:
        for _ in range(3):
            assert read(both, input_fn) == [0, 1, 2, 3, 4, 5]
            assert both.evaluate(input_fn)["sum"] == -2.5


def test_a_file_is_read_as_it_is_at_each_call(tmp_path, model, num_opened):
    path = tmp_path / "lines.txt"

    def input_fn():
        return tf.data.TextLineDataset(str(path)).batch(2)

    path.write_text("a\nb\nc\n")
    assert read(model, input_fn) == [b"a", b"b", b"c"]
    before = num_opened()
    path.write_text("d\n")
    assert read(model, input_fn) == [b"d"]
    assert num_opened() == before


def test_files_that_appear_are_found(tmp_path, model):
    def input_fn():
        return Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False).batch(1)

    for number in range(3):
        path = tmp_path / f"{number}.txt"
        path.write_text("")
        assert read(model, input_fn)[-1] == str(path).encode()
        assert len(read(model, input_fn)) == number + 1


def variable():
    count = tf.compat.v1.get_variable("count", [], tf.int64, tf.compat.v1.zeros_initializer())
    return {"x": tf.compat.v1.assign_add(count, 1)[None]}


def of_random_numbers():
    data = Dataset.range(5).map(lambda _: tf.random.uniform([], 0, 10**6, tf.int64, seed=2))
    return data.batch(2)


# What has state that another reading would go on with: each call begins at its beginning.
WITH_STATE = {
    "random numbers": of_random_numbers,
    "a generator": lambda: Dataset.from_generator(
        lambda: range(3), output_signature=tf.TensorSpec([], tf.int64)
    ).batch(2),
    "a numpy function": lambda: (
        Dataset.range(3).map(lambda x: tf.numpy_function(lambda y: y + 1, [x], tf.int64)).batch(2)
    ),
    "random files": lambda: Dataset.random(seed=4).take(3).batch(2),
}


@pytest.mark.parametrize("kind", WITH_STATE)
def test_an_input_with_state_begins_anew(model, num_opened, kind):
    first = read(model, WITH_STATE[kind])
    before = num_opened()
    assert read(model, WITH_STATE[kind]) == first
    assert num_opened() == before + 1


def test_a_variable_of_an_input_begins_anew(model):
    def first_three():
        rows = model.predict(variable)
        return [row["x"].tolist() for row in itertools.islice(rows, 3)]

    assert first_three() == first_three() == [1, 2, 3]


def test_a_shuffled_order_is_that_of_a_first_call(tmp_path, model):
    def input_fn():
        return Dataset.range(50).shuffle(50, seed=5).batch(10)

    rows = [read(model, input_fn) for _ in range(3)]
    with est.Estimator(model_fn, str(tmp_path / "other")) as other:
        assert rows == [read(other, input_fn)] * 3


def test_unfinished_predictions_of_one_input_do_not_share_a_position(model):
    def input_fn():
        return Dataset.range(6).batch(1)

    read(model, input_fn)
    first, second = model.predict(input_fn), model.predict(input_fn)
    assert [next(first), next(first), next(second)] == [0, 1, 0]
    first.close()
    assert list(second) == [1, 2, 3, 4, 5]
    assert read(model, input_fn) == list(range(6))


def test_a_part_of_an_endless_input_is_its_beginning_at_each_call(model):
    def input_fn():
        return Dataset.range(10**9).repeat().map(lambda x: tf.cast(x, tf.float32)).batch(2)

    def metrics_fn(features, mode):
        mean = tf.compat.v1.metrics.mean(features)
        return est.EstimatorSpec(mode, loss=tf.zeros([]), eval_metric_ops={"mean": mean})

    with est.Estimator(metrics_fn, model.model_dir) as evaluated:
        means = [evaluated.evaluate(input_fn, steps=2)["mean"] for _ in range(4)]
    assert means == [1.5] * 4


def test_an_endless_input_is_refused_by_each_evaluation(model):
    for _ in range(2):
        with pytest.raises(ValueError, match="never ends"):
            model.evaluate(lambda: Dataset.range(3).repeat().batch(1))


def test_an_input_that_failed_is_opened_anew(model):
    def input_fn():
        checked = Dataset.range(3).map(lambda x: tf.debugging.check_numerics(1 / (x - 2), "zero"))
        return checked.batch(1)

    for _ in range(2):
        rows = model.predict(input_fn)
        assert [next(rows), next(rows)] == [-0.5, -1.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="zero"):
            next(rows)


def test_a_hook_runs_ops_of_the_input_of_its_own_call(model):
    ops = []

    def input_fn():
        ops.append(tf.constant(len(ops)))
        return Dataset.range(2).batch(2)

    class Reads(est.SessionRunHook):
        def after_create_session(self, session, coord):
            self.value = session.run(ops[-1])

    for number in range(3):
        hook = Reads()
        assert list(model.predict(input_fn, hooks=[hook])) == [0, 1]
        assert hook.value == number


def test_eight_threads_predict_at_once(model):
    def input_fn(start):
        return Dataset.range(start, start + 40).map(lambda x: x * 2).batch(8)

    found = {}

    def predict(start):
        found[start] = [read(model, lambda: input_fn(start)) for _ in range(5)]

    predict(0)
    threads = [threading.Thread(target=predict, args=[start]) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert found == {start: [[2 * x for x in range(start, start + 40)]] * 5 for start in range(8)}


def test_few_sessions_are_kept_and_closed_with_the_estimator(tmp_path):
    with est.Estimator(model_fn, str(tmp_path)) as model:
        for start in range(9):
            read(model, lambda start=start: Dataset.range(start, 12).batch(3))
        kept = [session.session for _, session in model._warm_sessions.inputs._idle]
        assert len(kept) == 4
    for session in kept:
        with pytest.raises(RuntimeError, match="closed"):
            session.run(session.graph.get_operations()[0])


def test_the_session_of_a_large_input_is_not_kept(model):
    large = np.zeros([9, 2**20], np.float32)
    assert len(read(model, lambda: Dataset.from_tensor_slices(large).batch(3))) == 9
    assert not model._warm_sessions.inputs._idle


def test_of_two_datasets_in_equal_graphs_the_returned_one_is_read(model):
    def input_fn(place):
        both = [Dataset.range(4).batch(2), Dataset.range(4, 8).batch(2)]
        return both[place]

    for place in (0, 1, 0, 1):
        assert read(model, lambda place=place: input_fn(place)) == [
            *range(4 * place, 4 * place + 4)
        ]


def test_a_later_call_builds_nothing_beyond_what_input_fn_does(model):
    graphs = []

    def input_fn():
        graphs.append(tf.compat.v1.get_default_graph())
        return Dataset.range(4).batch(2)

    for _ in range(2):
        assert read(model, input_fn) == [0, 1, 2, 3]
    first, second = ({op.type for op in graph.get_operations()} for graph in graphs)
    assert first - second == {"OptionsDataset", "IteratorV2", "MakeIterator"} | {
        "IteratorToStringHandle",
        "IteratorGetNext",
    }


def test_a_dataset_made_outside_is_refused_before_the_model_is_built(tmp_path):
    def never_called(features, mode):
        raise AssertionError

    outside = Dataset.range(4).batch(2)
    with est.Estimator(never_called, str(tmp_path)) as model:
        for call in (model.predict, model.evaluate):
            with pytest.raises(ValueError, match="was made outside of it"):
                list(call(lambda: outside))


def test_labels_in_the_place_of_a_none_are_not_read(model):
    def input_fn(has_none):
        both = Dataset.from_tensors((np.arange(2), np.arange(2) + 5))
        if has_none:
            return both.map(lambda p, q: ({"a": p, "n": None}, q))
        return both.map(lambda p, q: {"a": p, "b": q})

    for has_none, keys in ((True, {"a"}), (False, {"a", "b"})) * 2:
        rows = list(model.predict(lambda has_none=has_none: input_fn(has_none)))
        assert [set(row) for row in rows] == [keys] * 2
        assert [row["a"] for row in rows] == [0, 1]
