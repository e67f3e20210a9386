import json
import os
import pty
import re
import signal
import subprocess
import sys

import psutil
import pytest

from estimator.config.cluster import parse_tf_config
from tests.launch.launching import (
    LIMIT_SECS,
    ROOT,
    command,
    environment,
    lines_of,
    living,
    printed_pids,
    read_pids,
    run,
    started,
    write_program,
)

FULL_CLUSTER = ("--chief", "--workers=2", "--ps=2", "--evaluator")
ALL_TASKS = ["chief 0", "worker 0", "worker 1", "ps 0", "ps 1", "evaluator 0"]


def test_each_task_has_its_own_tf_config_of_one_cluster(tmp_path):
    program = write_program(tmp_path, "print(os.environ['TF_CONFIG'], flush=True)")
    finished = run(*FULL_CLUSTER, "--", "sh", "-c", f"exec {sys.executable} {program}")
    assert finished.returncode == 0, finished.stderr
    texts = dict(re.findall(r"^\[(\w+ \d)\] +(.*)$", finished.stdout, re.MULTILINE))
    assert set(texts) >= {"chief 0", "worker 0", "worker 1", "evaluator 0"}
    (addresses,) = {json.dumps(json.loads(text)["cluster"]) for text in texts.values()}
    counts = {role: len(listed) for role, listed in json.loads(addresses).items()}
    assert counts == {"chief": 1, "worker": 2, "ps": 2, "evaluator": 1}
    for name, text in texts.items():
        cluster = parse_tf_config(text)
        assert f"{cluster.task_type} {cluster.task_id}" == name
        assert cluster.is_chief == (name == "chief 0")


def test_without_a_chief_worker_0_is_it(tmp_path):
    program = write_program(tmp_path, "print(os.environ['TF_CONFIG'])")
    finished = run("--workers=2", "--", program)
    chiefs = {
        name: parse_tf_config(*lines_of(finished.stdout, name)).is_chief
        for name in ("worker 0", "worker 1")
    }
    assert chiefs == {"worker 0": True, "worker 1": False}


def test_lines_of_several_tasks_never_mix(tmp_path):
    program = write_program(
        tmp_path,
        """
        for number in range(1000):
            for piece in (f"{role} {index} ", f"line {number} ", "x" * 50, "\\n"):
                os.write(1, piece.encode())
        """,
    )
    finished = run("--workers=3", "--", program)
    assert finished.returncode == 0
    for name in ("worker 0", "worker 1", "worker 2"):
        expected = [f"{name} line {number} {'x' * 50}" for number in range(1000)]
        assert lines_of(finished.stdout, name) == expected
    assert len(finished.stdout.splitlines()) == 3000


def test_stdout_and_stderr_stay_apart(tmp_path):
    program = write_program(tmp_path, "print('out'); print('err', file=sys.stderr)")
    finished = run("--workers=1", "--", program)
    assert finished.stdout == "[worker 0] out\n"
    assert lines_of(finished.stderr, "worker 0") == ["err"]


def test_only_a_terminal_gets_colours(tmp_path):
    program = write_program(tmp_path, "print('out'); print('err', file=sys.stderr)")
    main_end, task_end = pty.openpty()
    try:
        finished = subprocess.run(
            command("--workers=2", "--", program),
            cwd=ROOT,
            stdout=task_end,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_SECS,
            check=False,
        )
        shown = os.read(main_end, 4096).decode()
    finally:
        os.close(main_end)
        os.close(task_end)
    assert sorted(shown.splitlines()) == [
        "\x1b[32m[worker 1]\x1b[0m out",
        "\x1b[36m[worker 0]\x1b[0m out",
    ]
    assert "\x1b" not in finished.stderr


@pytest.mark.parametrize(
    ("failure", "code", "how"),
    [
        ("sys.exit(7)", 7, "ended with exit code 7"),
        ("raise ValueError('no')", 1, "ended with exit code 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was ended by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "was ended by SIGSEGV"),
    ],
)
def test_the_first_failure_ends_all_tasks_and_is_the_exit_code(tmp_path, failure, code, how):
    os.mkfifo(tmp_path / "fifo")
    program = write_program(
        tmp_path,
        f"""
        path = {str(tmp_path / "fifo")!r}
        on_sigterm(lambda: sys.exit(9))
        if (role, index) == ("worker", 1):
            with open(path, "r+b", buffering=0) as fifo:
                for _ in range(5):  # The others wait.
                    fifo.read(1)
            {failure}
        print("waiting", os.getpid(), flush=True)
        with open(path, "wb") as fifo:
            fifo.write(b".")
        sleep()
        """,
    )
    finished = run(*FULL_CLUSTER, "--", program)
    assert finished.returncode == code
    (line,) = (line for line in lines_of(finished.stderr, "launch") if "ended" in line)
    assert line.startswith(f"worker 1 {how}")
    pids = printed_pids(finished)
    assert (len(pids), living(pids)) == (5, [])


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_all_tasks_with_sigterm(tmp_path, number, code):
    program = write_program(
        tmp_path,
        """
        def save():
            print("saved", flush=True)
            sys.exit(143)

        on_sigterm(save)
        wait_for_the_end()
        """,
    )
    # The grace is longer than the test may take: nothing is killed.
    with started(*FULL_CLUSTER, "--restarts=3", "--grace_secs=1000", "--", program) as process:
        pids = read_pids(process, 6)
        assert sorted(pids) == sorted(ALL_TASKS)
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_SECS)
    assert process.returncode == code
    assert sorted(out.splitlines()) == sorted(f"{f'[{name}]':<14}saved" for name in ALL_TASKS)
    assert lines_of(err, "launch")[1:] == [f"{number.name}: ending all tasks"]
    assert living(pids.values()) == []


IGNORES_SIGTERM = """
    on_sigterm(lambda: print("waiting", os.getpid(), flush=True))
    wait_for_the_end()
"""


def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    program = write_program(tmp_path, IGNORES_SIGTERM)
    with started("--workers=2", "--grace_secs=0.2", "--", program) as process:
        pids = read_pids(process, 2)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT_SECS)
    assert process.returncode == 143
    killed = "SIGKILL to worker 0, worker 1, still running 0.2 s after SIGTERM (--grace_secs)"
    assert lines_of(err, "launch")[2] == killed
    assert living(pids.values()) == []


def test_a_second_signal_kills_at_once(tmp_path):
    program = write_program(tmp_path, IGNORES_SIGTERM)
    with started("--workers=2", "--grace_secs=1000", "--", program) as process:
        pids = read_pids(process, 2)
        process.send_signal(signal.SIGINT)
        assert read_pids(process, 2) == pids  # Each has had its SIGTERM.
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_SECS)
    assert process.returncode == 130
    assert lines_of(err, "launch")[-1].endswith("still running when SIGINT was received")
    assert living(pids.values()) == []


@pytest.mark.parametrize("grace_secs", [1000, 0.2], ids=["polite", "ignores SIGTERM"])
def test_tasks_and_what_they_started_end_with_a_launcher_that_is_killed(tmp_path, grace_secs):
    program = write_program(
        tmp_path,
        f"""
        def save():
            with open(f"{tmp_path}/saved {{os.getpid()}}", "w"):
                pass
            if {grace_secs} == 1000:
                sys.exit(0)

        on_sigterm(save)
        os.fork()
        # One write, as both processes have one pipe, and `print` writes word by word.
        os.write(1, f"waiting {{os.getpid()}}\\n".encode())
        sleep()
        """,
    )
    flags = ("--workers=2", f"--grace_secs={grace_secs}")
    with started(*flags, "--", program) as process:
        pids = [int(process.stdout.readline().split()[-1]) for _ in range(4)]
        tasks = [psutil.Process(pid) for pid in pids]
        process.kill()
        _, err = process.communicate(timeout=LIMIT_SECS)
        psutil.wait_procs(tasks, timeout=LIMIT_SECS)
    assert living(pids) == []
    assert {int(path.name.split()[1]) for path in tmp_path.glob("saved *")} == set(pids)
    # It may have been killed before it said what it started.
    assert lines_of(err, "launch")[-1:] == ["the launcher is gone: ending all tasks"]


@pytest.mark.parametrize("child", ["sys.exit(0)", "None"], ids=["polite", "ignores SIGTERM"])
@pytest.mark.parametrize("code", [0, 3])
def test_no_grandchild_is_left(tmp_path, child, code):
    program = write_program(
        tmp_path,
        f"""
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            on_sigterm(lambda: {child})
            print("waiting", os.getpid(), flush=True)
            os.write(write_end, b".")
            sleep()
        os.read(read_end, 1)
        sys.exit({code})
        """,
    )
    finished = run("--workers=1", "--grace_secs=0.2", "--", program)
    assert finished.returncode == code
    pids = printed_pids(finished)
    assert (len(pids), living(pids)) == (1, [])


def test_a_grandchild_has_its_grace_though_its_parent_is_gone(tmp_path):
    program = write_program(
        tmp_path,
        """
        def save():
            print("saved", flush=True)
            sys.exit(0)

        on_sigterm(save)
        wait_for_the_end()
        """,
    )
    # A shell dies of SIGTERM at once.
    shell = f"{sys.executable} {program}; echo never"
    with started("--workers=1", "--grace_secs=1000", "--", "sh", "-c", shell) as process:
        pids = read_pids(process, 1)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT_SECS)
    assert out == "[worker 0] saved\n"
    assert living(pids.values()) == []


def test_the_ps_are_ended_when_the_others_are_done(tmp_path):
    program = write_program(
        tmp_path,
        """
        if role == "ps":
            on_sigterm(lambda: sys.exit(143))
            wait_for_the_end()
        """,
    )
    finished = run(*FULL_CLUSTER, "--", program)
    assert finished.returncode == 0, finished.stderr
    assert living(printed_pids(finished)) == []


def test_a_ps_may_end_by_itself_but_not_fail(tmp_path):
    program = write_program(
        tmp_path,
        """
        if (role, index) == ("ps", 1):
            sys.exit(int(sys.argv[1]))
        if (role, index) != ("worker", 0) or sys.argv[1] != "0":
            wait_for_the_end()
        """,
    )
    assert run("--workers=1", "--ps=2", "--", program, "0").returncode == 0
    finished = run("--workers=1", "--ps=2", "--", program, "4")
    assert finished.returncode == 4
    assert "ps 1 ended with exit code 4" in finished.stderr


def test_the_evaluator_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    program = write_program(
        tmp_path,
        f"""
        path = {str(tmp_path / "fifo")!r}
        if role == "worker":
            file = open(path, "w")  # Closed when the process ends.
        else:
            open(path).read()
            print("evaluated")
            sys.exit(5)
        """,
    )
    finished = run("--workers=1", "--evaluator", "--", program)
    assert finished.returncode == 5
    assert lines_of(finished.stdout, "evaluator 0") == ["evaluated"]


FAILS_UNTIL = """
    path = os.path.join(os.path.dirname(__file__), "attempts")
    if (role, index) == ("worker", 0):
        with open(path, "a") as file:
            print(config["cluster"]["worker"][0], file=file)
        if len(open(path).readlines()) < int(sys.argv[1]):
            sys.exit(6)
    elif len(open(path).readlines() if os.path.exists(path) else []) < int(sys.argv[1]):
        wait_for_the_end()
"""


@pytest.mark.parametrize(
    ("num_restarts", "succeeds_at", "code", "num_attempts"),
    [(0, 2, 6, 1), (1, 3, 6, 2), (2, 3, 0, 3), (5, 3, 0, 3), (5, 1, 0, 1)],
)
def test_restarts_start_all_tasks_anew(tmp_path, num_restarts, succeeds_at, code, num_attempts):
    program = write_program(tmp_path, FAILS_UNTIL)
    finished = run("--workers=1", f"--restarts={num_restarts}", "--", program, str(succeeds_at))
    assert finished.returncode == code
    addresses = (tmp_path / "attempts").read_text().splitlines()
    assert len(addresses) == num_attempts
    assert len(set(addresses)) == num_attempts  # Ports that an old server may hold are not used.
    assert len(re.findall("Started worker 0", finished.stderr)) == num_attempts


def test_a_restart_is_one_of_every_task(tmp_path):
    program = write_program(
        tmp_path,
        """
        path = os.path.join(os.path.dirname(__file__), "failed")
        if index == 1 and not os.path.exists(path):
            open(path, "w")
            sys.exit(6)
        if not os.path.exists(path):
            wait_for_the_end()
        print("second")
        """,
    )
    finished = run("--workers=3", "--restarts=1", "--", program)
    assert finished.returncode == 0
    assert len(re.findall("second", finished.stdout)) >= 3


def test_nobody_reads_so_all_tasks_end(tmp_path):
    program = write_program(
        tmp_path,
        """
        print("waiting", os.getpid(), flush=True)
        while True:
            print("more")
        """,
    )
    with started("--workers=2", "--", program) as process:
        pids = [int(process.stdout.readline().split()[-1])]
        process.stdout.close()
        assert process.wait(timeout=LIMIT_SECS) == 141
        assert "Traceback" not in process.stderr.read()
    assert living(pids) == []


@pytest.mark.parametrize("form", ["file", "module", "command"])
def test_the_program_may_be_a_file_a_module_or_a_command(tmp_path, form):
    program = write_program(tmp_path, "print(role, index, sys.argv[1:])")
    words = {"file": [program], "module": ["-m", "program"], "command": ["sh", "-c"]}[form]
    if form == "command":
        words += ["echo worker 0 \"['$0', '$1']\""]
    finished = run("--", *words, "--flag=1", "--workers", env=environment(PYTHONPATH=str(tmp_path)))
    assert finished.stdout == "[worker 0] worker 0 ['--flag=1', '--workers']\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers=0", "--ps=1", "--", "true"], "--workers (0) must be at least 1"),
        (["--workers=-1", "--", "true"], "workers"),
        (["--ps=-1", "--", "true"], "ps"),
        (["--restarts=-1", "--", "true"], "restarts"),
        (["--grace_secs=-1", "--", "true"], "grace_secs"),
        (["--workers=2"], "No program is given"),
        (["--workers=2", "--"], "No program is given"),
        (["--", "-m"], "-m must be followed by the name of a module"),
        (["--", "no-such-command"], "The program ('no-such-command') must be a Python file"),
    ],
)
def test_a_wrong_command_line_starts_nothing(arguments, message):
    finished = run(*arguments)
    assert finished.returncode == 1
    assert message in finished.stderr
    assert "Started" not in finished.stderr


@pytest.mark.parametrize("module", ["estimator_launch", "estimator.launch"])
def test_it_imports_no_tensorflow_under_either_name(module):
    finished = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", module, "--", "true"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECS,
        check=False,
    )
    assert finished.returncode == 0
    imported = [line.rpartition("|")[2].strip() for line in finished.stderr.splitlines()]
    assert "estimator_launch.job" in imported
    assert [name for name in imported if name.split(".")[0] in ("tensorflow", "numpy")] == []


@pytest.mark.parametrize("start", ["-m estimator_launch", "-m estimator.launch", "-c {script}"])
def test_help_shows_the_flags_however_it_is_started(start):
    # What the console script does, whose main module is made by pip.
    script = "from estimator_launch.command import run; run()"
    arguments = [word.format(script=script) for word in start.split()]
    finished = subprocess.run(
        [sys.executable, *arguments, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECS,
        check=False,
    )
    assert finished.stdout.startswith("Runs a program as a cluster on this machine"), finished
    assert "--grace_secs: Seconds from SIGTERM to SIGKILL. " in finished.stdout
