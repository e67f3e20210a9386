"""What a program shows that sets no logging up, and what it leaves for other programs."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from tests.forked import LIMIT_SECS, ROOT, Program, without_cpp_log

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plain_run.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"}


def command(model_dir, max_steps):
    return [sys.executable, PROGRAM, str(model_dir), str(max_steps), "0"]


def after_import(text):
    """What was written after TensorFlow was imported."""
    return without_cpp_log(text.partition("---")[2].lstrip("\r\n"))


def read_metrics(model_dir):
    with open(os.path.join(model_dir, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def killed_and_resumed(tmp_path_factory):
    """(model_dir, metrics after the kill, all that the second run wrote)."""
    model_dir = tmp_path_factory.mktemp("killed") / "model"
    with Program(PROGRAM, model_dir, 1000, 170) as killed:
        assert killed.status() == -9, killed.err
    before = read_metrics(model_dir)
    with open(model_dir / "metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "step": 2')
    resumed = run(command(model_dir, 1000))
    assert resumed.returncode == 0, resumed.stderr
    return model_dir, before, resumed.stdout.decode() + resumed.stderr.decode()


def run(arguments):
    return subprocess.run(
        arguments, check=False, capture_output=True, env=ENVIRONMENT, timeout=LIMIT_SECS
    )


def test_off_a_terminal_there_are_a_few_lines_and_no_carriage_returns(killed_and_resumed):
    model_dir, _, written = killed_and_resumed
    assert "\r" not in written
    lines = [line for line in after_import(written).splitlines() if not is_of_the_program(line)]
    number, time = r"[\d,.e+-]+", r"(\d+\.\d s|[\d:]+)"
    speed, where = f"{number} steps/s", re.escape(str(model_dir))
    expected = [
        rf"Training in {where} from step 100 \(model\.ckpt-100\) to 1,000: "
        r"1 step a session call, 1 replica, 8 examples a step",
        *(
            rf"step {step:,} of 1,000: loss {number}, {speed}, {time} left"
            for step in range(150, 1001, 50)
        ),
        rf"Training stopped at step 1,000 \(max_steps\): 900 steps in {time}, {speed}, "
        rf"loss {number}\. Checkpoint: {where}/model\.ckpt-1000",
        rf"TensorBoard: .*tensorboard.* --logdir {where}",
        rf"Evaluated {where}/model\.ckpt-1000: global_step = 1000, error = {number}, "
        rf"loss = {number}",
        rf"Predicting with {where}/model\.ckpt-1000",
        rf"SavedModel written to {where}/export/\d+",
    ]
    assert len(lines) == len(expected), written
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line)


def is_of_the_program(line):
    """Whether the line is of a warning that the program itself calls what is deprecated."""
    return line.startswith(
        ("WARNING:tensorflow:From " + PROGRAM, "Instructions for", "Queue-based")
    )


def test_only_the_programs_own_calls_of_deprecated_functions_are_shown(killed_and_resumed):
    _, _, written = killed_and_resumed
    callers = re.findall(r"From (\S+):\d+: (\w+) \(from", after_import(written))
    assert sorted(set(callers)) == [(PROGRAM, "batch"), (PROGRAM, "slice_input_producer")]


def test_a_killed_and_resumed_run_has_each_step_once(killed_and_resumed):
    model_dir, before, _ = killed_and_resumed
    assert [line["step"] for line in before] == [50, 100, 150]
    *train, evaluation = read_metrics(model_dir)
    assert {line["kind"] for line in train} == {"train"}
    assert [line["step"] for line in train] == list(range(50, 1001, 50))
    assert train[:2] == before[:2]
    assert train[2] != before[2]
    assert (evaluation["kind"], evaluation["step"]) == ("eval", 1000)


def run_on_terminal(arguments):
    """Runs a command whose stderr is a terminal of 110 columns; returns all that it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 110, 0, 0))
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=theirs, env={**ENVIRONMENT, "TERM": "xterm"}
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:
        pass  # So Linux tells the end.
    os.close(ours)
    assert process.wait(LIMIT_SECS) == 0, written
    return written.decode()


def test_on_a_terminal_a_bar_takes_the_place_of_the_lines_in_between(tmp_path):
    written = after_import(run_on_terminal(command(tmp_path / "model", 2000)))
    drawings = re.findall(r"\r *(\d+)%\|[^|\r]*\| (\d+)/2000 \[([^\]]*)\]", written)
    assert drawings[0][:2] == ("0", "0")
    assert len(drawings) > 1
    for _, _, rest in drawings[1:]:
        # The time so far, the time that is left, the rate and the loss.
        assert re.fullmatch(r"\d\d:\d\d<\d\d:\d\d, +[\d.]+ ?steps/s, loss=[\d.e+-]+", rest)
    assert "step 50 of" not in written
    # It is wiped off before the end is told.
    assert re.search(r"\| 0/2000 .*\r +\rTraining stopped at step 2,000", written, re.DOTALL)
    lines = [line for line in written.split("\r\n") if line and not is_of_the_program(line)]
    assert len(lines) == 6
