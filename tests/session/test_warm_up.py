"""A small session in another thread, once a process, while a graph is built."""

import itertools
import os
import threading

import pytest
import tensorflow as tf

import estimator as est
from estimator.session import warm_up
from tests.toy import Model, numbers, weight_after

v1 = tf.compat.v1


@pytest.fixture
def sessions(monkeypatch):
    """The configs of the sessions that are made, by the name of their thread; none was before."""
    made = []
    make = v1.Session.__init__

    def note(session, target="", graph=None, config=None):
        made.append((threading.current_thread().name, config))
        make(session, target, graph, config)

    monkeypatch.setattr(v1.Session, "__init__", note)
    monkeypatch.setattr(warm_up, "_CALLS", itertools.count())
    monkeypatch.setattr(warm_up, "_num_cpus", lambda: 2)
    return made


def test_the_first_local_session_of_a_process_is_preceded_by_a_small_one(sessions):
    threads = {"inter_op_parallelism_threads": 3, "intra_op_parallelism_threads": 2}
    config = v1.ConfigProto(log_device_placement=True, device_count={"GPU": 2}, **threads)
    with warm_up.warmed_up("grpc://localhost:1", config):
        pass
    assert not sessions
    for _ in range(2):
        with warm_up.warmed_up("", config):
            pass
    ((thread, used),) = sessions
    assert thread.startswith("preparation")
    assert used == v1.ConfigProto(device_count={"GPU": 0}, **threads)


def test_there_is_none_if_the_process_may_use_one_cpu(sessions, monkeypatch):
    monkeypatch.setattr(warm_up, "_num_cpus", lambda: 1)
    with warm_up.warmed_up("", v1.ConfigProto()):
        pass
    assert not sessions


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux takes CPUs away")
def test_cpus_that_the_process_may_not_use_do_not_count():
    cpus = os.sched_getaffinity(0)
    assert warm_up._num_cpus() == len(cpus)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        assert warm_up._num_cpus() == 1
    finally:
        os.sched_setaffinity(0, cpus)


def test_errors_are_those_of_the_block(sessions):
    with pytest.raises(KeyError, match="on purpose"), warm_up.warmed_up("", v1.ConfigProto()):
        raise KeyError("on purpose")
    assert len(sessions) == 1


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_every_verb_may_be_the_first(verb, sessions, tmp_path):
    with est.Estimator(Model(), str(tmp_path)) as model:
        result = getattr(model, verb)(numbers(3))
        list(result if verb == "predict" else [])
        assert [thread.startswith("preparation") for thread, _ in sessions].count(True) == 1
        if verb == "train":
            assert model.get_variable_value("w") == weight_after([[i] for i in range(3)])
