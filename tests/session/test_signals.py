"""Signals that come while a session call runs; in this process."""

import contextlib
import logging
import os
import signal
import threading
import time

import pytest
import tensorflow as tf

import estimator as est
from estimator.session.signals import StopSignal, stop_signals
from tests.integration.cluster import LIMIT_SECS
from tests.toy import Model, numbers

v1 = tf.compat.v1


class Told(logging.Handler):
    """Notes that training says it will stop."""

    def __init__(self):
        super().__init__()
        self.has_come = threading.Event()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())
        if "Send it again" in self.texts[-1]:
            self.has_come.set()


@pytest.fixture
def told():
    handler, logger = Told(), logging.getLogger("estimator")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class Endless:
    """A loop that says when it is in its steps, and ends by an error if nothing else ends it."""

    def __init__(self):
        self.has_begun, self.is_given_up = threading.Event(), threading.Event()

    def model_fn(self, features, labels, mode):
        def check(number):
            self.has_begun.set()
            assert not self.is_given_up.is_set()
            return number

        spec = Model()(features, labels, mode)
        checked = tf.numpy_function(check, [spec.loss], spec.loss.dtype)
        with tf.control_dependencies([checked]):
            return spec._replace(train_op=tf.group(spec.train_op))


def test_the_first_ctrl_c_in_a_long_loop_is_answered_at_once_and_the_second_ends_it(told):
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    endless, answered = Endless(), []
    config = est.RunConfig(
        iterations_per_loop=10**9, save_checkpoints_steps=None, save_summary_steps=None
    )

    def press_twice():
        endless.has_begun.wait(LIMIT_SECS)
        os.kill(os.getpid(), signal.SIGINT)
        answered.append(told.has_come.wait(LIMIT_SECS))
        if answered[0]:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            endless.is_given_up.set()

    presses = threading.Thread(target=press_twice)
    presses.start()
    try:
        with pytest.raises(KeyboardInterrupt), est.Estimator(endless.model_fn, None, config) as m:
            m.train(numbers(), steps=10**9)
    finally:
        presses.join()
        handler = signal.signal(signal.SIGINT, previous)
    assert answered == [True]
    assert handler is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
    (text,) = [text for text in told.texts if "SIGINT" in text]
    assert text.endswith(
        "training will save and stop after this loop. Send it again to stop at once."
    )


def test_a_program_that_is_told_of_signals_by_a_pipe_still_is(told, tmp_path):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    previous = signal.signal(signal.SIGTERM, signal.SIG_DFL)

    class Kill(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            signal.raise_signal(signal.SIGTERM)

    try:
        with pytest.raises(SystemExit, match="143"), est.Estimator(Model(), str(tmp_path)) as m:
            m.train(numbers(), [Kill()])
        assert os.read(reader, 10) == bytes([signal.SIGTERM])
        assert signal.set_wakeup_fd(before) == writer
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGTERM, previous)
        os.close(reader)
        os.close(writer)


def handlers():
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), wakeup


@pytest.fixture
def _sigint_is_not_ignored():
    """A process that a shell started with `&` ignores SIGINT, which the library leaves so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_sigint_is_not_ignored")
def test_handlers_are_restored_after_an_error_and_not_by_a_block_inside():
    before = handlers()
    with contextlib.suppress(ZeroDivisionError), stop_signals():
        within = handlers()
        assert all(new != old for new, old in zip(within, before, strict=True))
        with stop_signals():
            assert handlers() == within
        assert handlers() == within
        raise ZeroDivisionError
    assert handlers() == before


def test_who_registers_after_a_signal_is_told_of_it_at_once():
    stop, calls = StopSignal(), []
    stop.when_received(lambda: calls.append("early"))
    stop.received = signal.SIGTERM
    stop.when_received(lambda: calls.append("late"))
    assert calls == ["late"]
    stop.tell()
    assert calls == ["late", "early", "late"]


def test_another_thread_leaves_the_handlers_alone():
    def look():
        with stop_signals():
            answers.append(signal.getsignal(signal.SIGTERM))

    answers = []
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert answers == [signal.getsignal(signal.SIGTERM)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_forked_process_is_ended_by_a_signal_that_its_parent_does_not_take_for_its_own(number):
    with stop_signals() as stop:
        child = os.fork()
        if child == 0:
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(LIMIT_SECS)
                signal.pause()
            except KeyboardInterrupt:
                os._exit(3)
            finally:
                os._exit(1)
        ended, status = 0, 0
        while not ended:  # It ends by the alarm at the latest.
            os.kill(child, number)  # Again, in case it has not come to its pause.
            time.sleep(0.05)
            ended, status = os.waitpid(child, os.WNOHANG)
        is_term = number == signal.SIGTERM
        assert os.waitstatus_to_exitcode(status) == (-number if is_term else 3)
        time.sleep(0.2)  # The thread that reads signals would have told by now.
        assert stop.received is None


def test_a_forked_process_may_leave_the_block_too():
    child = None
    try:
        with stop_signals():
            child = os.fork()
            if child == 0:
                raise SystemExit(7)
    except BaseException as error:
        if child == 0:
            os._exit(error.code if isinstance(error, SystemExit) else 1)
        raise
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


class Install(v1.train.SessionRunHook):
    """Installs a handler of the program's while training runs, and sends that signal."""

    def __init__(self, number, handler):
        self.number, self.handler, self.found = number, handler, None

    def begin(self):
        self.found = signal.signal(self.number, self.handler)

    def after_run(self, run_context, run_values):
        if callable(self.handler):
            signal.raise_signal(self.number)


def train_with(hook, number, default):
    """Trains for two steps, and returns the handler that is installed afterwards."""
    previous = signal.signal(number, default)
    try:
        with est.Estimator(Model()) as model:
            model.train(numbers(), [hook], steps=2)
        return signal.getsignal(number)
    finally:
        signal.signal(number, previous)


OURS = [(signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)]


@pytest.mark.parametrize(("number", "default"), OURS)
def test_a_handler_that_a_hook_installs_gets_its_signals_and_is_kept(number, default, told):
    came = []

    def mine(number, frame):
        came.append(number)

    assert train_with(Install(number, mine), number, default) is mine
    assert came == [number, number]
    assert train_with(Install(number, signal.SIG_IGN), number, default) is signal.SIG_IGN
    assert not told.has_come.is_set()


@pytest.mark.parametrize(("number", "default"), OURS)
def test_a_hooks_handler_may_call_the_one_it_found(number, default, told):
    def mine(number, frame):
        came.append(number)
        hook.found(number, frame)

    came, hook = [], Install(number, mine)
    ends_with = SystemExit if number == signal.SIGTERM else KeyboardInterrupt
    with pytest.raises(ends_with):
        train_with(hook, number, default)
    assert came == [number]
    assert told.has_come.is_set()


def test_a_handler_that_is_put_back_after_training_gives_way_to_the_default():
    number, default = OURS[1]
    previous = signal.signal(number, default)
    hook = Install(number, signal.SIG_IGN)
    try:
        train_with(hook, number, default)
        signal.signal(number, hook.found)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert signal.getsignal(number) is default
    finally:
        signal.signal(number, previous)


def test_a_process_ends_by_sigterm_although_the_handler_of_its_training_was_put_back():
    with stop_signals():
        found = signal.getsignal(signal.SIGTERM)
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGTERM, found)
            signal.raise_signal(signal.SIGTERM)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
