"""What a worker makes of the notices that others have written on its server."""

import json

import pytest

from estimator.cluster.failure_notices import FailureNotices
from estimator.config.cluster import parse_tf_config

CHIEF, OTHER = ("chief", 0), ("worker", 0)
ADDRESSES = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}


@pytest.fixture
def notices(monkeypatch):
    """Those of the last of three workers, in its fourth training."""
    monkeypatch.setattr(FailureNotices, "_next_number", 3)
    task = {"cluster": ADDRESSES, "task": {"type": "worker", "index": 1}}
    return FailureNotices(parse_tf_config(json.dumps(task)), None)


def number(training):
    return b"training number %d" % training


def test_trainings_are_numbered(notices):
    assert notices.number == 3
    assert FailureNotices._next_number == 4


def test_a_failure_in_this_training_counts_before_one_in_a_later_training(notices):
    texts = {CHIEF: number(4) + b"\nOSError: later", OTHER: number(3) + b"\nKeyError: now"}
    assert notices._find_failed(texts) == ("worker 0", "KeyError: now")
    assert notices._find_failed({CHIEF: texts[CHIEF]}) == ("the chief", "OSError: later")


def test_a_failure_in_an_earlier_training_does_not_count(notices):
    assert notices._find_failed({CHIEF: number(2) + b"\nOSError: before"}) is None


@pytest.mark.parametrize("named", [b"agreed", number(3)])
def test_once_begun_only_failures_of_this_training_count(notices, named):
    notices.begin(b"agreed")
    assert notices._find_failed({CHIEF: number(4) + b"\nOSError: later"}) is None
    assert notices._find_failed({CHIEF: b"another\nOSError: other"}) is None
    assert notices._find_failed({CHIEF: named + b"\nOSError: now"}) == ("the chief", "OSError: now")


def test_all_have_arrived_when_each_is_in_this_training(notices):
    for arrivals in ({}, {CHIEF: number(3)}, {CHIEF: number(3), OTHER: number(2)}):
        assert notices._note_arrivals(arrivals) is None
        assert not notices._have_all_arrived.is_set()
    assert notices._note_arrivals({CHIEF: number(3), OTHER: number(3)}) is None
    assert notices._have_all_arrived.is_set()


def test_a_worker_that_was_restarted_alone_meets_the_others_in_its_next_training(notices):
    name, why = notices._note_arrivals({CHIEF: number(3), OTHER: number(8)})
    assert (name, "later training" in why) == ("worker 0", True)
    assert not notices._have_all_arrived.is_set()
    assert FailureNotices._next_number == 8


def test_what_cannot_be_delivered_stays_in_the_outbox(notices, monkeypatch):
    answering, delivered = {OTHER}, []

    def on(task, key, call):
        delivered.extend([task] if task in answering else [])
        return task in answering

    monkeypatch.setattr(notices, "_on", on)
    notices._send_to_others("key", b"text")
    notices._deliver()
    assert delivered == [OTHER]
    answering.add(CHIEF)
    notices._deliver()
    notices._deliver()
    assert delivered == [OTHER, CHIEF]
