"""Contenders that take turns, and the statistics of what they took.

A trainer that can only be started with `train()` or `fit()` cannot be called once a round. So
each contender runs in a thread of its own and calls its `Meter` between its steps; the meter
blocks that thread until it is its turn. Exactly one contender runs at any time, the others
wait on a lock, and the clock is read in the running thread, so that what is timed is steps and
nothing else: no graph building, no first or last checkpoint, no hand-over.
"""

import math
import queue
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence

# Runs a trainer that calls `report(steps of the last call)` until it returns False.
Trainer = Callable[[Callable[[int], bool]], object]
# Contender -> one measurement per round.
Rounds = dict[str, list[float]]

# How many steps of a model a contender runs in a round: a multiple of its longest loop. Where steps
# are short, a fifth of a second: on a machine whose speed drifts within seconds, many rounds of
# contenders close to each other vary half as much as a few long ones that take the same time.
ROUND_STEPS = {
    "logistic": 1000,
    "mlp": 300,
    "cnn": 100,
    "columns": 500,
    "resnet": 10,
    "transformer": 100,
    "resnet_50": 20,
    "bert_base": 25,
}


class Meter:
    """A trainer in a thread that runs only when it is asked to."""

    def __init__(self, train: Trainer) -> None:
        """Starts the thread and waits until the first call is over, tracing and all."""
        self._train = train
        self._turns: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[float | BaseException] = queue.SimpleQueue()
        self._steps_left = 0
        self._num_steps = 0
        self._start = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._wait_for_answer()

    def measure(self, num_steps: int) -> float:
        """Lets the trainer go on for `num_steps` steps; returns the seconds per step.

        `num_steps` is a multiple of the steps of one call.
        """
        self._turns.put(num_steps)
        return self._wait_for_answer()

    def stop(self) -> None:
        """Ends the training and its thread; raises what the training raised at its end."""
        self._turns.put(0)
        self._wait_for_answer()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._train(self._report)
            if self._num_steps:
                raise RuntimeError("The training ended before it was told to.")
            self._answers.put(0.0)
        except BaseException as error:  # raised again by the thread that waits
            self._answers.put(error)

    def _report(self, num_steps: int) -> bool:
        now = time.perf_counter()
        self._steps_left -= num_steps
        if self._steps_left > 0:
            return True
        self._answers.put((now - self._start) / max(self._num_steps, 1))
        self._num_steps = self._steps_left = self._turns.get()
        self._start = time.perf_counter()
        return self._num_steps > 0

    def _wait_for_answer(self) -> float:
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def measure_rounds(
    contenders: Mapping[str, Callable[[], float]],
    num_rounds: int,
    until: float = math.inf,
    has_warm_up: bool = True,
) -> Rounds:
    """Measures each contender once a round, by default after a round of warm-up.

    The order rotates, so that none always follows the same other.

    Args:
      contenders: measure themselves once a call.
      num_rounds: the rounds, at most.
      until: the `time.monotonic()` at which to end: no round begins that would end later if it took
        as long as the one before. If that leaves none, what counts is the warm-up.
      has_warm_up: whether the first round does not count. Those that start processes need none.
    """
    num_warm_ups = int(has_warm_up)
    names = list(contenders)
    rounds: Rounds = {name: [] for name in names}
    for index in range(num_rounds + num_warm_ups):
        start = time.monotonic()
        first = index % len(names)
        for name in names[first:] + names[:first]:
            rounds[name].append(contenders[name]())
        end = time.monotonic()
        if end + (end - start) > until:
            break
    return {name: values[num_warm_ups:] or values for name, values in rounds.items()}


def measure_trainers(
    trainers: Mapping[str, Trainer],
    steps_per_round: int,
    num_rounds: int,
    until: float = math.inf,
) -> Rounds:
    """Seconds per step of trainers that take turns, as `measure_rounds` takes them."""
    meters = {name: Meter(train) for name, train in trainers.items()}
    contenders = {
        name: (lambda meter=meter: meter.measure(steps_per_round)) for name, meter in meters.items()
    }
    rounds = measure_rounds(contenders, num_rounds, until)
    for meter in meters.values():
        meter.stop()
    return rounds


def time_call(function: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def divide(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """The ratios, round by round."""
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def compute_quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high
