"""Intervals mean exactly those steps, whatever the loop's length."""

import pytest

import estimator as est
from estimator.session.schedule import Schedule, loop_length
from tests.toy import Model, checkpoint_steps, events, numbers


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def steps_at_which_it_fires(schedule, ends):
    return [
        end for start, end in zip([0, *ends], ends, strict=False) if schedule.is_due(start, end)
    ]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (range(1, 11), [3, 6, 9]),  # A loop of one step ends on each multiple.
        ([2, 4, 6, 8, 10], [4, 6, 10]),  # One of two jumps over 3 and 9.
        ([10, 11, 12], [10, 12]),  # One crossing, however many multiples it crosses.
        ([3, 3, 3], [3]),
    ],
)
def test_it_fires_on_crossing_a_multiple(ends, expected):
    assert steps_at_which_it_fires(Schedule(every_steps=3), list(ends)) == expected


def test_it_fires_after_the_seconds_and_starts_counting_anew():
    clock = Clock()
    schedule = Schedule(every_secs=10, clock=clock)
    fired = []
    for second in range(31):
        clock.now = 1000.0 + second
        if schedule.is_due(second, second + 1):
            fired.append(second)
    assert fired == [10, 20, 30]


def test_seconds_count_from_the_last_time_and_not_from_multiples():
    clock = Clock()
    schedule = Schedule(every_secs=10, clock=clock)
    fired = []
    for second in (5, 14, 23, 24, 33, 34):
        clock.now = 1000.0 + second
        if schedule.is_due(0, 1):
            fired.append(second)
    assert fired == [14, 24, 34]


def test_without_an_interval_it_never_fires():
    schedule = Schedule()
    assert not schedule.is_due(0, 10**9)
    assert schedule.next_step(5) is None


@pytest.mark.parametrize(("step", "expected"), [(0, 7), (1, 7), (6, 7), (7, 14), (8, 14)])
def test_the_next_step_is_the_next_multiple(step, expected):
    assert Schedule(every_steps=7).next_step(step) == expected


def test_seconds_do_not_shorten_a_loop():
    assert Schedule(every_secs=1).next_step(3) is None


def loop_ends(iterations_per_loop, max_step, *intervals, start=0):
    schedules = [Schedule(every_steps=interval) for interval in intervals]
    step, ends = start, []
    while step < max_step:
        step += loop_length(step, iterations_per_loop, max_step, schedules)
        ends.append(step)
    return ends


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((5, 23), [5, 10, 15, 20, 23]),
        ((5, 23, 7), [5, 7, 12, 14, 19, 21, 23]),
        ((5, 23, 7, 3), [3, 6, 7, 9, 12, 14, 15, 18, 21, 23]),
        ((1, 3, 7), [1, 2, 3]),
        ((100, 23, 7), [7, 14, 21, 23]),
        ((100, 300), [100, 200, 300]),
        ((100, 23, 23), [23]),
    ],
)
def test_a_loop_ends_on_each_step_that_something_waits_for(arguments, expected):
    assert loop_ends(*arguments) == expected


def test_a_resumed_run_ends_its_loops_on_multiples_too():
    assert loop_ends(5, 23, 7, start=4) == [7, 12, 14, 19, 21, 23]


def test_without_a_last_step_a_loop_has_its_whole_length():
    assert loop_length(0, 100, None, [Schedule(every_steps=1000), Schedule(every_secs=1)]) == 100


def run(model_dir, iterations_per_loop, max_steps=23, **config):
    config = est.RunConfig(
        **{
            "save_checkpoints_steps": 7,
            "save_summary_steps": 3,
            "keep_checkpoint_max": 0,
            "log_step_count_steps": 4,
            "iterations_per_loop": iterations_per_loop,
            **config,
        }
    )
    trained = est.Estimator(Model(), str(model_dir), config)
    trained.train(numbers(), max_steps=max_steps)
    return trained


@pytest.mark.parametrize("iterations_per_loop", [1, 5, 100])
def test_checkpoints_and_summaries_fall_on_exactly_their_steps(tmp_path, iterations_per_loop):
    trained = run(tmp_path / "one", iterations_per_loop)
    assert checkpoint_steps(trained.model_dir) == [0, 7, 14, 21, 23]
    written = events(trained.model_dir)
    # So does the first call, which ends on step 3 if a loop may be as long.
    first = [1] if iterations_per_loop == 1 else []
    steps = [step for step, tag, _ in written if tag == "loss"]
    assert steps == [*first, 3, 6, 9, 12, 15, 18, 21]
    single = run(tmp_path / "single", 1)
    assert trained.get_variable_value("w") == single.get_variable_value("w")


@pytest.mark.parametrize("iterations_per_loop", [1, 5, 100])
def test_intervals_keep_their_multiples_over_a_resume(tmp_path, iterations_per_loop):
    run(tmp_path, iterations_per_loop, max_steps=10)
    trained = run(tmp_path, iterations_per_loop, max_steps=23)
    assert checkpoint_steps(trained.model_dir) == [0, 7, 10, 14, 21, 23]
    written = events(trained.model_dir)
    # The first call of the training is recorded, that of the resume is not: a run that goes on
    # records what the unbroken one would.
    first = [1] if iterations_per_loop == 1 else []
    steps = [step for step, tag, _ in written if tag == "loss"]
    assert steps == [*first, 3, 6, 9, 12, 15, 18, 21]


def test_the_loss_that_is_written_is_the_loss_of_that_step(tmp_path):
    def losses(iterations_per_loop):
        trained = run(tmp_path / str(iterations_per_loop), iterations_per_loop)
        written = events(trained.model_dir)
        return [(step, value.simple_value) for step, tag, value in written if tag == "loss"]

    assert losses(1)[1:] == losses(5) == losses(100)  # The first one is of step 1.


@pytest.mark.parametrize("iterations_per_loop", [1, 5])
def test_intervals_of_none_and_0_are_never(tmp_path, iterations_per_loop):
    trained = run(
        tmp_path,
        iterations_per_loop,
        save_checkpoints_steps=None,
        save_summary_steps=0,
        log_step_count_steps=0,
    )
    assert checkpoint_steps(trained.model_dir) == [23]
    assert events(trained.model_dir) == []


@pytest.mark.parametrize("iterations_per_loop", [1, 4])
def test_the_speed_is_written_by_the_loop_that_crosses_a_multiple(tmp_path, iterations_per_loop):
    trained = run(tmp_path, iterations_per_loop, save_summary_steps=None)
    written = events(trained.model_dir)
    assert [step for step, tag, _ in written if tag == "global_step/sec"] == (
        [4, 8, 12, 16, 20] if iterations_per_loop == 1 else [4, 11, 14, 18, 21]
    )
