import pytest

from estimator.config.loop_length import checked_loop_length, loop_secs, loop_steps
from estimator.config.run_config import RunConfig
from estimator.config.tpu_config import TPUConfig
from estimator.config.tpu_run_config import TPURunConfig

CONFIGS = {
    "RunConfig": lambda value: RunConfig(iterations_per_loop=value),
    "TPUConfig": lambda value: TPUConfig(iterations_per_loop=value),
    "tpu.RunConfig": lambda value: TPURunConfig(TPUConfig(value)),
    "replace": lambda value: TPURunConfig().replace(iterations_per_loop=value),
}


@pytest.mark.parametrize(
    ("value", "kept", "steps", "secs"),
    [
        (1, 1, 1, None),
        (100, 100, 100, None),
        ("100", 100, 100, None),
        ("30s", "30s", None, 30),
        ("2m", "2m", None, 120),
        ("1h", "1h", None, 3600),
        ("auto", "auto", None, 1),
    ],
)
def test_a_loop_is_as_long_as_it_says(value, kept, steps, secs):
    assert checked_loop_length("iterations_per_loop", value) == kept
    assert loop_steps(kept) == steps
    assert (loop_secs(kept) if loop_steps(kept) is None else None) == secs
    for make in CONFIGS.values():
        assert make(value).iterations_per_loop == kept


@pytest.mark.parametrize("make", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, r"`iterations_per_loop` \(0\) must be at least 1"),
        (-1, ValueError, r"`iterations_per_loop` \(-1\) must be at least 1"),
        (2.5, TypeError, r"\(2.5\) must be an integer, a time such as '30s', '2m' or '1h', or 'a"),
        (True, TypeError, r"\(True\) must be an integer"),
        (None, TypeError, r"\(None\) must be an integer"),
        ("", ValueError, r"\(''\) must be an integer, a time"),
        ("0s", ValueError, r"\('0s'\) must be an integer, a time"),
        ("-5s", ValueError, r"\('-5s'\) must be an integer, a time"),
        ("1.5s", ValueError, r"\('1.5s'\) must be an integer, a time"),
        ("5 s", ValueError, r"\('5 s'\) must be an integer, a time"),
        ("5d", ValueError, r"\('5d'\) must be an integer, a time"),
        ("Auto", ValueError, r"\('Auto'\) must be an integer, a time .* or 'auto'"),
    ],
)
def test_another_length_is_an_error(make, value, error, message):
    with pytest.raises(error, match=message):
        make(value)
