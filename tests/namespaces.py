"""A network of nodes on one machine: each has a network namespace of its own, and a router between them may drop packets.

    with Network(3) as network:
        Daemon("nsqd", "-tcp-address", f"{network.address(0)}:4150", command=network.command(0, sys.executable, ...))
        network.drop(0, 1)  # packets from node 0 to node 1 vanish, those from 1 to 0 arrive

The thread that enters the block is in the router's namespace meanwhile, with all threads and processes that it starts: it
reaches every node whatever is dropped between them. The namespaces have no names and lie in no file: they vanish with the last
process in them, so runs beside each other do not meet, and one that is killed leaves nothing behind.

It needs root, `ip` and `nsenter`. Packets are dropped by routing rules, in silence: these need neither nft nor iptables, nor
tc and its modules of the kernel.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from itertools import permutations
from types import TracebackType

_LIBC = ctypes.CDLL(None, use_errno=True)  # os.setns and os.unshare came with Python 3.12
_CLONE_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"
_COMMAND_TIMEOUT = 60.0  # s


def missing() -> str:
    """Return the reason why network namespaces do not work here; "" if they do."""
    if os.geteuid() != 0:
        return "not running as root"
    absent = [name for name in ("ip", "nsenter") if shutil.which(name) is None]
    if absent:
        return f"{' and '.join(absent)} not installed"
    try:
        with Network(2) as network:
            network.drop(0, 1)
    except OSError as error:
        return f"network namespaces do not work: {error}"
    return ""


class Network:
    """A router and `count` nodes. Raises OSError."""

    def __init__(self, nodes: int) -> None:
        self.dropped: set[tuple[int, int]] = set()  # (sender, receiver)
        self._count = nodes
        self._open: list[
            int
        ] = []  # descriptors that hold the namespaces: the nodes', the router's, that of the thread before

    def __enter__(self) -> Network:
        try:
            self._open += [_new_namespace() for _ in range(self._count + 1)]
            self._open.append(os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC))
            _enter(self._open[-2])
            self._join()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        if len(self._open) > self._count + 1:
            _enter(self._open[-1])
        while self._open:
            os.close(self._open.pop())

    def _join(self) -> None:
        _run("ip", "link", "set", "lo", "up")
        with open("/proc/sys/net/ipv4/ip_forward", "w") as switch:
            switch.write("1")
        for number in range(self._count):
            own, peer = f"10.0.{number}.1", self.address(number)
            there = f"/proc/{os.getpid()}/fd/{self._open[number]}"
            _run("ip", "link", "add", f"node{number}", "type", "veth", "peer", "name", "eth0", "netns", there)
            _run("ip", "address", "add", f"{own}/24", "dev", f"node{number}")
            _run("ip", "link", "set", f"node{number}", "up")
            for words in (
                ("link", "set", "lo", "up"),
                ("address", "add", f"{peer}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("route", "add", "default", "via", own),
            ):
                _run(*self.command(number, "ip", *words))

    # the nodes

    def address(self, number: int) -> str:
        """Return the IP address of a node."""
        return f"10.0.{number}.2"

    def command(self, number: int, *words: str) -> list[str]:
        """Return the command that runs `words` in the namespace of a node. The process is that of `words`."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self._open[number]}", *words]

    # dropped packets

    def drop(self, sender: int, receiver: int) -> None:
        """Drop all packets from one node to another from now on."""
        if (sender, receiver) not in self.dropped:
            self.dropped.add((sender, receiver))
            self._rule("add", sender, receiver)

    def cut(self, *sides: set[int]) -> None:
        """Drop all packets between nodes of different sides."""
        side = {node: place for place, nodes in enumerate(sides) for node in nodes}
        for sender, receiver in permutations(side, 2):
            if side[sender] != side[receiver]:
                self.drop(sender, receiver)

    def heal(self) -> None:
        """Let all packets pass again."""
        while self.dropped:
            self._rule("del", *self.dropped.pop())

    def _rule(self, verb: str, sender: int, receiver: int) -> None:
        _run("ip", "rule", verb, "iif", f"node{sender}", "to", self.address(receiver), "blackhole")


def _new_namespace() -> int:
    """Return a descriptor of a new network namespace. Raises OSError."""
    made: list[int | OSError] = []

    def make() -> None:
        try:
            _check(_LIBC.unshare(_CLONE_NEWNET))
            made.append(os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)  # which leaves the caller's namespace, and ends
    thread.start()
    thread.join()
    (result,) = made
    if isinstance(result, OSError):
        raise result
    return result


def _enter(namespace: int) -> None:
    """Move the calling thread to a namespace. Raises OSError."""
    _check(_LIBC.setns(namespace, _CLONE_NEWNET))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_TIMEOUT)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
