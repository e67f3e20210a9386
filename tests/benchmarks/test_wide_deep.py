"""The benchmark of a ready-made model: what it asks for, and what it leaves out."""

from benchmarks import wide_deep

_ROUNDS = {"ours 100": [2.0, 2.0], "ours 1": [4.0, 4.0], "by hand 100": [2.0, 2.0]}
_ROUNDS |= {"keras 100": [1.0, 1.0]}


def test_it_is_to_be_no_slower_than_keras_and_by_hand_and_twice_as_fast_as_tf_estimator():
    rows = wide_deep.make_rows("columns", {**_ROUNDS, "tf.estimator": [5.0, 5.0]})
    assert {row.what: row.is_met for row in rows} == {
        "ours 100 / keras 100": False,
        "ours 100 / by hand 100": True,
        "ours 1 / by hand 100": None,
        "ours 100 / tf.estimator": True,
        "a step by hand": None,
    }


def test_without_tf_estimator_its_row_is_left_out(monkeypatch, capsys):
    monkeypatch.setenv("PEER_PYTHON", "/absent/python")
    with wide_deep._started_peer() as peer:
        assert peer is None
    assert capsys.readouterr().err.startswith("tf.estimator is left out: no /absent/python.")
    whats = [row.what for row in wide_deep.make_rows("columns", _ROUNDS)]
    assert whats
    assert not [what for what in whats if "tf.estimator" in what]
