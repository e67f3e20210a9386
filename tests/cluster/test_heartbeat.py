"""Tasks that do not answer: what counts as that, and what does not."""

import threading
import types

import grpc
import pytest
import tensorflow as tf

from estimator.cluster.heartbeat import ANSWER, METHOD, Heartbeat
from tests.integration.cluster import LIMIT_SECS, free_addresses

v1 = tf.compat.v1


class Task:
    """A channel to a task that answers only when it is told to."""

    def __init__(self):
        self.calls = []

    def unary_unary(self, method):
        return self

    def future(self, request, timeout, wait_for_ready):
        call = types.SimpleNamespace(name=None, cancel=lambda: None)
        call.done = lambda: call.name is not None
        call.code = lambda: call
        self.calls.append(call)
        return call

    def end(self, name):
        self.calls[-1].name = name


def make(timeout_secs=60):
    tasks, silent = {"worker 0": Task(), "ps 0": Task()}, []
    return tasks, silent, Heartbeat(tasks, timeout_secs, silent.append)


@pytest.mark.parametrize("timeout_secs", [0.5, 6, 60, 600])
def test_a_task_is_lost_that_leaves_checks_unanswered_for_most_of_the_timeout(timeout_secs):
    tasks, silent, heartbeat = make(timeout_secs)
    heartbeat.check_all()
    count = 0
    while not silent:
        tasks["ps 0"].end(ANSWER)
        heartbeat.check_all()
        count += 1
    assert set(silent) == {"worker 0"}
    assert heartbeat.is_silent("worker 0")
    assert not heartbeat.is_silent("ps 0")
    interval_secs = min(timeout_secs / 12, 5)
    # With the check before, in which it may just have answered, and some seconds for the rest.
    assert 0.7 * timeout_secs < count * interval_secs <= 0.75 * timeout_secs
    assert len(tasks["worker 0"].calls) == 1  # It is still being asked.


def test_an_answer_makes_up_for_all_that_were_missed_whatever_time_has_passed():
    tasks, silent, heartbeat = make()
    for _ in range(8):
        heartbeat.check_all()
    assert set(heartbeat.quiet()) == set(tasks)
    for task in tasks.values():
        task.end(ANSWER)
    heartbeat.check_all()
    assert (heartbeat.quiet(), silent) == ([], [])


@pytest.mark.parametrize("name", ["DEADLINE_EXCEEDED", "UNAVAILABLE"])
def test_a_failed_check_is_none_that_was_answered_and_is_made_again(name):
    tasks, silent, heartbeat = make()
    for count in range(1, 10):
        heartbeat.check_all()
        tasks["worker 0"].end(name)
        tasks["ps 0"].end(ANSWER)
        assert len(tasks["worker 0"].calls) == count
    heartbeat.check_all()
    assert silent == ["worker 0"]


def test_who_is_in_a_hurry_waits_for_a_few_checks_only():
    _, silent, heartbeat = make()
    heartbeat.hurry()
    for _ in range(4):
        assert silent == []
        heartbeat.check_all()
    assert sorted(silent) == ["ps 0", "worker 0"]


def is_answered(call):
    """Whether a call is answered within a second."""
    try:
        return bool(call.result(1))
    except grpc.FutureTimeoutError:
        return False


@pytest.mark.slow
def test_a_server_whose_threads_are_all_in_slow_python_functions_answers():
    (address,) = free_addresses(1)
    server = tf.distribute.Server({"local": [address]}, job_name="local", task_index=0)
    has_begun, may_end = threading.Event(), threading.Event()

    def block(number):
        has_begun.set()
        may_end.wait(LIMIT_SECS)
        return number

    with tf.Graph().as_default() as graph:
        blocked = [tf.numpy_function(block, [float(i)], tf.float32) for i in range(256)]
    with v1.Session(server.target, graph) as session, grpc.insecure_channel(address) as channel:
        call = threading.Thread(target=session.run, args=[blocked])
        call.start()
        try:
            assert has_begun.wait(LIMIT_SECS)
            get_status = channel.unary_unary("/tensorflow.WorkerService/GetStatus")
            # The other threads may reach their functions later.
            while is_answered(status := get_status.future(b"")):
                pass
            with pytest.raises(grpc.RpcError) as answer:
                channel.unary_unary(METHOD)(b"", timeout=LIMIT_SECS)
            assert answer.value.code().name == ANSWER
        finally:
            may_end.set()
            call.join()
        assert status.result(LIMIT_SECS)
