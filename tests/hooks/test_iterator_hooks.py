"""An `input_fn` that returns an iterator's tensors, and who runs `iterator.initializer`."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.toy import Model, weight_after

v1 = tf.compat.v1

STRATEGIES = pytest.mark.parametrize(
    "strategy", ["no_strategy", "one_device", "mirrored_x2", "central_storage_x2"]
)

DATA = np.arange(8, dtype=np.float32)


class InitializerHook(v1.train.SessionRunHook):
    """As in many a program: the input_fn sets what this runs."""

    def __init__(self):
        self.initialize = None
        self.sessions = []

    def after_create_session(self, session, coord):
        self.sessions.append(session)
        self.initialize(session)


def fed_input(hook):
    """Data that is fed to a placeholder when the iterator is initialized."""

    def input_fn():
        placeholder = v1.placeholder(tf.float32, [None])
        dataset = tf.data.Dataset.from_tensor_slices(placeholder).batch(2)
        iterator = v1.data.make_initializable_iterator(dataset)
        hook.initialize = lambda session: session.run(
            iterator.initializer, feed_dict={placeholder: DATA}
        )
        return iterator.get_next(), None

    return input_fn


def named_input(hook):
    """The initializer is run by its name."""

    def input_fn():
        iterator = v1.data.make_initializable_iterator(
            tf.data.Dataset.from_tensors(DATA).unbatch().batch(2)
        )
        tf.group(iterator.initializer, name="start_of_input")
        hook.initialize = lambda session: session.run("start_of_input")
        return iterator.get_next(), None

    return input_fn


def listed_input(hook):
    """Nobody runs the initializer but the library, with those of tables."""
    hook.initialize = lambda session: None

    def input_fn():
        iterator = v1.data.make_initializable_iterator(
            tf.data.Dataset.from_tensors(DATA).unbatch().batch(2)
        )
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        return iterator.get_next(), None

    return input_fn


INPUTS = {"fed": fed_input, "named": named_input, "listed": listed_input}


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("loop", "kind"), [(1, "fed"), (100, "fed"), (100, "named"), (1, "listed")]
)
@STRATEGIES
def test_every_verb_sees_the_whole_input(tmp_path, strategy, loop, kind):
    config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop)
    trained = est.Estimator(Model(), str(tmp_path), config)

    def call(verb, **kwargs):
        hook = InitializerHook()
        return verb(INPUTS[kind](hook), hooks=[hook], **kwargs)

    call(trained.train)
    assert trained.train_result.reason == "end of input"
    size = 4 if strategy.endswith("x2") else 2
    w = weight_after(DATA.reshape(-1, size))
    np.testing.assert_allclose(trained.get_variable_value("w"), w, rtol=1e-6)
    for _ in range(2):
        assert call(trained.evaluate)["mean"] == 3.5
        predictions = list(call(trained.predict))
        np.testing.assert_allclose(predictions, w * DATA, rtol=1e-5)


@STRATEGIES
def test_a_hook_finds_variables_of_the_model_in_the_same_session(tmp_path, strategy):
    config = cases.make_config(**cases.STRATEGIES[strategy])
    trained = est.Estimator(Model(), str(tmp_path), config)
    hook = InitializerHook()
    trained.train(fed_input(hook), hooks=[hook])
    seen = []

    class Look(InitializerHook):
        def begin(self):
            (self.w,) = v1.global_variables("w")

        def after_create_session(self, session, coord):
            super().after_create_session(session, coord)
            seen.append(session.run(self.w))

        def before_run(self, run_context):
            seen.append(run_context.session.run("w/Read/ReadVariableOp:0"))

        def end(self, session):
            seen.append(session.run({"a": [self.w]})["a"][0])
            assert session.graph is self.w.graph

    hook = Look()
    trained.evaluate(fed_input(hook), hooks=[hook], steps=1)
    assert seen == [trained.get_variable_value("w")] * 3


def test_an_iterator_that_nobody_initializes_is_an_error_that_says_so(tmp_path):
    def input_fn():
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(3).batch(1))
        return iterator.get_next(), None

    trained = est.Estimator(Model(), str(tmp_path))
    with pytest.raises(tf.errors.FailedPreconditionError, match="iterator"):
        trained.train(input_fn, steps=1)
