"""Starts the tasks of a cluster on this machine, each a process, and ends them all."""

import json
import random
import socket
import time

from tests.forked import LIMIT_SECS, ROOT, Program

__all__ = ["LIMIT_SECS", "ROOT", "Cluster", "free_addresses", "make_addresses", "tf_config"]


# Below the ports that systems give to outgoing connections, one of which could take a port before
# the server does for which it was found.
_PORTS = range(20000, 32768)
_found: set[int] = set()


def free_addresses(count):
    """Addresses on this machine that nobody listens on, never the same twice in a process."""
    ports = set()
    while len(ports) < count:
        port = random.SystemRandom().choice(_PORTS)
        if port not in _found and _is_free(port):
            ports.add(port)
            _found.add(port)
    return [f"127.0.0.1:{port}" for port in ports]


def _is_free(port):
    with socket.socket() as s:
        # As servers do, which can listen where a connection has just ended.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("", port))  # TensorFlow's servers listen on all interfaces.
        except OSError:
            return False
    return True


def make_addresses(**roles):
    """Free addresses for so many tasks of each role."""
    found = iter(free_addresses(sum(roles.values())))
    return {role: [next(found) for _ in range(count)] for role, count in roles.items()}


def tf_config(addresses, task_type, task_id):
    return json.dumps({"cluster": addresses, "task": {"type": task_type, "index": task_id}})


class Task(Program):
    """A process of a cluster."""

    def __init__(self, addresses, task_type, task_id, program, arguments, environment, network):
        self.network = network
        config = tf_config(addresses, task_type, task_id)
        super().__init__(program, *arguments, TF_CONFIG=config, **environment)
        self.name = f"{task_type} {task_id}"

    @property
    def results(self):
        """The JSON that each line of its output holds."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


class Cluster:
    """The tasks of some roles, started on entry and ended, whatever they do, on exit."""

    def __init__(
        self,
        program,
        *arguments,
        addresses=None,
        environment=None,
        only=None,
        network_of=lambda address: None,
        **roles,
    ):
        """`network_of` says in which network namespace the task at an address runs."""
        self.addresses = addresses or make_addresses(**roles)
        self._network_of = network_of
        self._program, self._arguments = program, arguments
        self._environment = environment or {}
        self._only = only
        self.tasks = {}

    def __enter__(self):
        try:
            for role, listed in self.addresses.items():
                for index in range(len(listed)):
                    if self._only is None or (role, index) in self._only:
                        self.start(role, index)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, role, index, *more):
        self.tasks[role, index] = Task(
            self.addresses,
            role,
            index,
            self._program,
            [*self._arguments, *more],
            self._environment,
            self._network_of(self.addresses[role][index]),
        )
        return self.tasks[role, index]

    def __getitem__(self, task):
        return self.tasks[task]

    def statuses(self, limit_secs=LIMIT_SECS):
        """The exit status of each task, in order."""
        end = time.monotonic() + limit_secs
        return [task.status(max(0.1, end - time.monotonic())) for task in self.tasks.values()]

    def check_all_succeed(self):
        for task in self.tasks.values():
            assert task.status() == 0, f"{task.name}: {task.out[-500:]} {task.err[-5000:]}"

    def __exit__(self, *error):
        for task in self.tasks.values():
            task.end()
