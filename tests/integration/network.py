"""Two machines of a test on one: network namespaces that are joined by a cable, which can be cut.

They have no names, and are gone with the processes in them; nothing outside them is changed.
"""

import contextlib
import os
import shutil
import subprocess

import pytest

# Set aside for documentation (RFC 5737): no real machine has such an address.
ADDRESSES = {"here": "192.0.2.1", "there": "192.0.2.2"}
HARDWARE = {"here": "02:00:00:00:00:01", "there": "02:00:00:00:00:02"}
DIRECTIONS = {"both": ("here", "there"), "from there": ("there",), "to there": ("here",)}


class Network:
    """The machines "here" and "there", which reach each other until the cable is cut."""

    def __init__(self):
        self._stack = contextlib.ExitStack()
        self._holders = {}

    def __enter__(self):
        if reason := reason_to_skip():
            pytest.skip(reason)
        with self._stack:
            for machine in ADDRESSES:
                self._holders[machine] = self._stack.enter_context(_holder())
            self._lay_cable()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error):
        self._stack.close()

    def place(self, here=(), there=()):
        """A cluster of these roles, one task each, on these machines: arguments of `Cluster`."""
        roles = [*((role, "here") for role in here), *((role, "there") for role in there)]
        addresses = {role: [f"{ADDRESSES[m]}:{2222 + i}"] for i, (role, m) in enumerate(roles)}
        return {"addresses": addresses, "network_of": self._namespace_at}

    def cut(self, direction):
        """From now on packets in a direction are lost, and nobody is told."""
        for machine in DIRECTIONS[direction]:
            # A queue of length 0 drops whatever is to leave.
            drop = "tc qdisc replace dev cable root pfifo limit 0"
            self._run(machine, *drop.split())

    def _namespace_at(self, address):
        host = address.rpartition(":")[0]
        return next(self._namespace(machine) for machine, ip in ADDRESSES.items() if ip == host)

    def _namespace(self, machine):
        return f"/proc/{self._holders[machine].pid}/ns/net"

    def _lay_cable(self):
        ends = [f"address {HARDWARE[m]}" for m in ("here", "there")]
        other = self._holders["there"].pid
        cable = f"ip link add cable {ends[0]} type veth peer name cable {ends[1]} netns {other}"
        self._run("here", *cable.split())
        for machine, peer in (("here", "there"), ("there", "here")):
            for command in (
                "ip link set lo up",
                f"ip address add {ADDRESSES[machine]}/24 dev cable",
                "ip link set cable up",
                # A router between them would know; without one they must not ask each other.
                f"ip neighbour replace {ADDRESSES[peer]} dev cable lladdr {HARDWARE[peer]} "
                "nud permanent",
            ):
                self._run(machine, *command.split())

    def _run(self, machine, *command):
        subprocess.run(["nsenter", f"--net={self._namespace(machine)}", *command], check=True)


def reason_to_skip():
    """Why this machine cannot have network namespaces; None if it can."""
    missing = [name for name in ("ip", "tc", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"network namespaces need {', '.join(missing)} (iproute2, util-linux)"
    if os.geteuid():
        return "network namespaces need root"
    made = _try("unshare", "--net", "ip", "link", "add", "cable", "type", "veth")
    return f"no network namespaces here: {made.stderr.strip()}" if made.returncode else None


def _try(*command):
    return subprocess.run(command, check=False, capture_output=True, text=True)


@contextlib.contextmanager
def _holder():
    """A process in a network namespace of its own, which ends with this one."""
    holder = subprocess.Popen(
        ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        holder.stdin.write("made\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "made\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()
