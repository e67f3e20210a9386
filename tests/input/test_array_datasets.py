"""Arrays that become datasets stay out of the graph, and the datasets hold the same elements."""

import collections
import gc
import os

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import estimator as est
from estimator.input import array_datasets
from estimator.input.array_datasets import LARGE_BYTES, arrays_outside_graph
from tests.toy import ids_model_fn, ids_of

v1 = tf.compat.v1
Dataset = tf.data.Dataset

Pair = collections.namedtuple("Pair", ["first", "second"])
RNG = np.random.default_rng(1)


def numbers(dtype, shape=(5, 3)):
    return RNG.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]

STRUCTURES = {
    **{dtype: numbers(dtype) for dtype in DTYPES},
    "a tuple": (numbers("float32"), numbers("int64", [5])),
    "a dict": {"b": numbers("float32"), "a": (numbers("int8"), numbers("uint8", [5, 2, 2]))},
    "a named tuple": Pair(numbers("float32"), {"x": numbers("int32")}),
    "a list is one tensor": [[1, 2], [3, 4]],
    "with strings": (np.array(["a", "b", "ü", "", "d"]), numbers("int32")),
    "with python numbers": (numbers("int32"), [1, 2, 3, 4, 5]),
    "columns first": np.asfortranarray(numbers("float32")),
    "a view": numbers("int32", [9, 8])[::2, ::-3],
    "read only": np.broadcast_to(np.float32(3), [5, 4]),
    "big-endian": numbers(">f4"),
    "a series": {"x": pd.Series([1.5, 2.5]), "y": pd.Series([1, 2]).to_numpy()},
    "a frame": pd.DataFrame({"a": [1, 2], "b": [3, 4]}),
    "no rows": np.zeros([0, 3], np.float32),
    "sparse": (tf.SparseTensorSpec([5, 2], tf.float32), numbers("float32")),
}


def made(structure):
    """The structure, with a sparse tensor of the current graph in it."""
    if isinstance(structure, tuple) and isinstance(structure[0], tf.SparseTensorSpec):
        return tf.sparse.SparseTensor([[1, 0], [4, 1]], [0.5, 2.5], [5, 2]), structure[1]
    return structure


def read(dataset):
    get_next = v1.data.make_one_shot_iterator(dataset).get_next()
    with v1.Session() as session:
        while True:
            try:
                yield session.run(get_next)
            except tf.errors.OutOfRangeError:
                return


@pytest.mark.parametrize("how", ["from_tensor_slices", "from_tensors"])
@pytest.mark.parametrize("kind", STRUCTURES)
def test_a_dataset_has_the_same_elements_as_an_eager_one(kind, how):
    eager = getattr(Dataset, how)(made(STRUCTURES[kind]))
    expected = list(eager)
    with tf.Graph().as_default() as graph:
        with arrays_outside_graph(1):
            dataset = getattr(Dataset, how)(made(STRUCTURES[kind]))
        assert dataset.element_spec == eager.element_spec
        found = list(read(dataset))
        outside = [op.name for op in graph.get_operations() if op.type == "PyFuncStateless"]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        ours, theirs = (tf.nest.flatten(e, expand_composites=True) for e in (one, other))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b.numpy())
            assert tf.as_dtype(np.asarray(a).dtype) == b.dtype or b.dtype == tf.string
    in_graph = ("a list is one tensor", "big-endian", "no rows")
    assert outside[:1] == ([] if kind in in_graph else ["input/array"])


def test_an_array_that_changes_later_does_not_change_the_dataset():
    buffer = np.zeros([4], np.int64)
    with tf.Graph().as_default(), arrays_outside_graph(1):
        parts = []
        for number in range(3):
            buffer[:] = number
            parts.append(Dataset.from_tensor_slices(buffer))
        buffer[:] = -1
        dataset = parts[0].concatenate(parts[1]).concatenate(parts[2])
        assert list(read(dataset)) == [0] * 4 + [1] * 4 + [2] * 4


def test_a_dataset_starts_again_with_the_same_values():
    array = np.arange(6.0)
    with tf.Graph().as_default(), v1.Session() as session:
        with arrays_outside_graph(1):
            dataset = Dataset.from_tensors(array).map(lambda x: x * 2)
        iterator = v1.data.make_initializable_iterator(dataset)
        get_next = iterator.get_next()
        for _ in range(3):
            session.run(iterator.initializer)
            assert session.run(get_next).tolist() == (array * 2).tolist()


def test_only_large_arrays_of_that_graph_are_kept_out():
    small, large = np.zeros([9], np.int8), np.zeros([10], np.int8)
    with tf.Graph().as_default() as graph:
        with arrays_outside_graph(10):
            Dataset.from_tensors((small, large))
            Dataset.range(2).flat_map(lambda _: Dataset.from_tensor_slices(large))
            with tf.Graph().as_default() as other:
                Dataset.from_tensor_slices(large)
        Dataset.from_tensor_slices(large)
    types = [op.type for op in graph.get_operations()]
    assert (types.count("PyFuncStateless"), types.count("TensorSliceDataset")) == (1, 1)
    assert "PyFuncStateless" not in [op.type for op in other.get_operations()]
    assert Dataset.from_tensor_slices(large).cardinality() == 10


class SizeOfGraph(est.SessionRunHook):
    def begin(self):
        self.bytes = v1.get_default_graph().as_graph_def().ByteSize()


def test_tensorflow_does_not_make_a_constant_of_an_array():
    """As it does of what a stateless op returns, if the op's inputs are constants, or none."""
    array = numbers("float32", [LARGE_BYTES, 1])
    options = v1.RunOptions(output_partition_graphs=True)
    metadata = v1.RunMetadata()
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        with arrays_outside_graph(LARGE_BYTES):
            iterator = v1.data.make_initializable_iterator(Dataset.from_tensor_slices(array))
        session.run(iterator.initializer, None, options, metadata)
    assert sum(part.ByteSize() for part in metadata.partition_graphs) < array.nbytes
    assert "PyFuncStateless" in {op.op for part in metadata.partition_graphs for op in part.node}


@pytest.mark.parametrize("loop_steps", [1, 5])
def test_training_resumes_in_data_that_its_graph_does_not_hold(tmp_path, loop_steps):
    rows = np.arange(400, dtype=np.int64)[:, None] * np.ones([1, 200], np.int64)
    assert rows.nbytes > LARGE_BYTES

    def input_fn():
        dataset = Dataset.from_tensor_slices(rows).shuffle(400, seed=3)
        return dataset.map(lambda row: row[:1]).repeat()

    def train(model_dir, *max_steps):
        for steps in max_steps:
            config = est.RunConfig(tf_random_seed=1, iterations_per_loop=loop_steps)
            with est.Estimator(ids_model_fn, str(model_dir), config) as model:
                size = SizeOfGraph()
                model.train(input_fn, max_steps=steps, hooks=[size])
                assert size.bytes < rows.nbytes / 4
        return ids_of(model)

    unbroken = train(tmp_path / "one", 30)
    assert len(set(unbroken)) == 30
    assert train(tmp_path / "two", 7, 20, 30) == unbroken
    assert max(os.path.getsize(path) for path in (tmp_path / "one").iterdir()) < rows.nbytes


def test_an_iterator_of_input_fn_itself_reads_them(tmp_path):
    rows = np.arange(LARGE_BYTES, dtype=np.int64)
    with est.Estimator(ids_model_fn, str(tmp_path)) as model:
        model.train(
            lambda: v1.data.make_one_shot_iterator(
                v1.data.Dataset.from_tensor_slices(rows).batch(1)
            ).get_next(),
            steps=5,
        )
        assert ids_of(model) == [0, 1, 2, 3, 4]


def test_arrays_are_freed_with_the_session_and_not_only_when_python_looks_for_garbage(tmp_path):
    rows = np.zeros([2**23 + 1], np.float32)  # Larger than what an evaluation keeps in its graph.
    graphs = []

    def input_fn():
        graphs.append(v1.get_default_graph())
        return Dataset.from_tensor_slices(rows).batch(1)

    gc.disable()
    try:
        with est.Estimator(ids_model_fn, str(tmp_path)) as model:
            model.train(input_fn, steps=2)
            model.evaluate(input_fn, steps=2)
        assert [list(array_datasets._arrays[graph]) for graph in graphs] == [[], []]
    finally:
        gc.enable()


def test_random_numbers_of_the_model_do_not_depend_on_the_size_of_the_arrays(tmp_path):
    def model_fn(features, mode):
        w = v1.get_variable("w", [3], initializer=v1.random_uniform_initializer())
        loss = tf.reduce_mean(w) + tf.random.uniform([])
        train_op = tf.group(w.assign_add(w * loss), v1.train.get_global_step().assign_add(1))
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def weights(name, num_rows):
        config = est.RunConfig(tf_random_seed=5)
        with est.Estimator(model_fn, str(tmp_path / name), config) as model:
            rows = np.zeros([num_rows], np.int8)
            model.train(lambda: Dataset.from_tensor_slices(rows).batch(2), steps=3)
            return model.get_variable_value("w").tolist()

    assert weights("small", LARGE_BYTES - 1) == weights("large", LARGE_BYTES)
