import numpy as np
import pytest
import tensorflow as tf

from input_pipelines import mnist
from tests.forked import Program

# Before the first batch, all that is to be shuffled is read: a part is enough.
PART, NUM_TRAIN, NUM_TEST = "train[:25%]", 1000, 1000


def read_labels(input_fn, batch_size, num_batches, **kwargs):
    batches = input_fn({"batch_size": batch_size}, **kwargs).take(num_batches)
    return [labels.tolist() for _, labels in batches.as_numpy_iterator()]


def read_keys(input_fn, num_examples, **kwargs):
    """The examples as something that can be compared and put into a set."""
    examples = input_fn({"batch_size": 100}, **kwargs).unbatch().take(num_examples)
    return [(f["image"].tobytes(), int(label)) for f, label in examples.as_numpy_iterator()]


@pytest.fixture(scope="module")
def make_input_fn(data_dir):
    def make(split=PART, **kwargs):
        return mnist.make_input_fn("mnist_5k", split, data_dir=data_dir, **kwargs)

    return make


def test_batches_of_training_have_a_fixed_shape(make_input_fn):
    features, labels = make_input_fn(training=True)({"batch_size": 32}).element_spec
    assert features == {"image": tf.TensorSpec([32, 28, 28, 1], tf.float32)}
    assert labels == tf.TensorSpec([32], tf.int32)


def test_pixels_are_scaled_to_half_around_zero(make_input_fn):
    features, _ = next(make_input_fn("test")({"batch_size": NUM_TEST}).as_numpy_iterator())
    assert features["image"].min() == -0.5
    assert features["image"].max() == 0.5
    assert set(np.round((features["image"] + 0.5) * 255, 3).ravel()) <= set(range(256))


@pytest.mark.parametrize("batch_size", [1, 7, 100, 999, 1000, 5000])
def test_evaluation_takes_every_example_once(make_input_fn, batch_size):
    labels = np.concatenate(read_labels(make_input_fn("test"), batch_size, -1))
    assert np.bincount(labels).tolist() == [100] * 10


def test_evaluation_comes_in_the_same_order_each_time(make_input_fn):
    first, second = (read_keys(make_input_fn("test"), -1) for _ in range(2))
    assert first == second


def test_an_epoch_of_training_takes_every_example_once(make_input_fn):
    in_order = read_keys(make_input_fn(), -1)
    shuffled = read_keys(make_input_fn(training=True, seed=1), NUM_TRAIN)
    assert shuffled != in_order
    assert sorted(shuffled) == sorted(in_order)


def test_each_epoch_has_an_order_of_its_own(make_input_fn):
    keys = read_keys(make_input_fn(training=True, seed=1), 2 * NUM_TRAIN)
    first, second = keys[:NUM_TRAIN], keys[NUM_TRAIN:]
    assert sorted(first) == sorted(second)
    agreeing = sum(a == b for a, b in zip(first, second, strict=True))
    assert agreeing < 20  # One is to be expected of two random orders.


def test_training_goes_on_past_the_end_in_full_batches(make_input_fn):
    batches = read_labels(make_input_fn(training=True), 300, 30)
    assert [len(batch) for batch in batches] == [300] * 30


def test_a_seed_gives_the_same_order_in_every_run(make_input_fn):
    first, second, other = (
        read_labels(make_input_fn(training=True, seed=seed), 50, 100) for seed in (7, 7, 8)
    )
    assert first == second
    assert first != other


def test_without_a_seed_the_graph_seed_fixes_the_order(make_input_fn):
    def read_in_graph(graph_seed):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.set_random_seed(graph_seed)
            batches = make_input_fn(training=True)({"batch_size": 50})
            iterator = tf.compat.v1.data.make_initializable_iterator(batches)
            _, labels = iterator.get_next()
            session.run(iterator.initializer)
            return [session.run(labels).tolist() for _ in range(5)]

    assert read_in_graph(1) == read_in_graph(1)
    assert read_in_graph(1) != read_in_graph(2)


def test_the_position_in_the_input_can_be_saved_and_restored(make_input_fn, tmp_path):
    batches = iter(make_input_fn(training=True, seed=3)({"batch_size": 100}))
    checkpoint = tf.train.Checkpoint(batches=batches)
    for _ in range(45):
        next(batches)
    path = checkpoint.write(str(tmp_path / "position"))
    expected = [next(batches)[1].numpy().tolist() for _ in range(80)]
    checkpoint.read(path)
    assert [next(batches)[1].numpy().tolist() for _ in range(80)] == expected


@pytest.mark.parametrize("num_workers", [2, 3])
def test_workers_share_the_examples_without_overlap(make_input_fn, num_workers):
    shares = [
        read_keys(
            make_input_fn("test"), -1, input_context=tf.distribute.InputContext(num_workers, i)
        )
        for i in range(num_workers)
    ]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert sorted(sum(shares, [])) == sorted(read_keys(make_input_fn("test"), -1))


def test_two_processes_may_prepare_the_same_folder_at_once(tmp_path):
    code = (
        "from input_pipelines import mnist\n"
        f"builder = mnist.prepare('mnist_5k', {str(tmp_path / 'data')!r})\n"
        "print(sum(1 for _ in mnist.read_examples(builder, 'test')))"
    )
    program = tmp_path / "program.py"
    program.write_text(code)
    with Program(str(program)) as one, Program(str(program)) as other:
        for process in (one, other):
            assert process.status() == 0, process.err
            assert process.out.splitlines()[-1] == "1000"


def test_an_unknown_data_set_is_refused_by_name(tmp_path):
    with pytest.raises(
        ValueError, match=r"`dataset` \('mnist_6k'\) must be one of mnist_5k, mnist"
    ):
        mnist.make_input_fn("mnist_6k", "train", data_dir=str(tmp_path))


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    with pytest.raises(RuntimeError, match=rf"`data_dir` \('{not_a_folder}'\)"):
        mnist.make_input_fn("mnist_5k", "train", data_dir=str(not_a_folder))
