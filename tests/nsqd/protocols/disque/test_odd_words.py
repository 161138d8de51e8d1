"""Any command with odd words: each is answered, or waits, or ends its own connection. Nothing ends the node."""

from dataclasses import replace
from random import Random

from nsqd.core.limits import Limits
from nsqd.protocols.disque.arguments import COMMANDS
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.context import Alone
from tests.effort import tries
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.disque.wire import NUMBER, Wire, context_of, request


class Server:
    """The clients of one node."""

    def __init__(self) -> None:
        self.node = Node(Limits(whole_job_ids=True))
        self.context: DisqueContext = replace(context_of(self.node), has_debug=True)
        self._wires: list[Wire] = []
        self.context.clients = lambda: [wire.peer for wire in self._wires if not wire.peer.outbox.closing]

    def client(self) -> Wire:
        wire = Wire(self.node, self.context)
        self._wires.append(wire)
        return wire


FUZZED = tries(20_000, in_short=2400)
ODD = (
    b"", b"a b", b"9" * 19, b"9" * 40, b"\xff\0\r\n", b"\xc2\xb2", b"D-" + b"z" * 38,
    b"D-zzzzzzzz-" + b"=" * 24 + b"-zzzz", b"D-zzzzzzzz-" + b"\xff" * 24 + b"-\xff\xff\xff\xff",
    *b"x q #q q#ephemeral 0 1 -1 --5 - +1 3 01 1.5 [ * on yes no id get set from count timeout nohang withcounters".split(),
    *b"retry ttl delay replicate maxlen async busyloop state queue reply all in out none bcast auth setname list".split(),
    *b"kill skipme type normal skip info nodes myid meet forget leaving hz maxmemory len reset latest graph error".split(),
    *b"127.0.0.1 flushall requirepass client-output-buffer-limit".split(),
)  # fmt: skip


BEGINNINGS = {  # so that odd words come to where they matter
    b"addjob": (b"q body 0", b"r body 0 retry", b"q body 0 ttl"),
    b"config": (b"get", b"set hz", b"set maxmemory", b"set client-output-buffer-limit", b"set requirepass"),
    b"cluster": (b"meet 127.0.0.1", b"leaving yes", b"leaving", b"forget", b"reset"),
    b"client": (b"kill id", b"kill addr", b"kill", b"pause", b"reply", b"setname"),
    b"hello": (b"3", b"2 auth x", b"3 setname"),
    b"slowlog": (b"get",),
    b"debug": (b"flushall", b"error"),
    b"latency": (b"graph", b"history"),
    b"qpeek": (b"q",),
    b"pause": (b"q",),
}


def test_no_command_with_odd_words_ends_the_node() -> None:
    """The same is sent again, too, which takes a shorter way."""
    random, names, added = Random(1), [*COMMANDS, b"quit", b"nosuch"], 0
    for _ in range(0, FUZZED, 200):
        server = Server()
        server.context.cluster = Alone(NUMBER, 7711, server.node.broker.drain)
        added += odd_arguments(server, random, names)
        server.node.broker.check()
    assert added


def odd_arguments(server: Server, random: Random, names: list[bytes]) -> int:
    """Send 200 commands, and return how many jobs were added."""
    wire, ids = server.client(), list[bytes]()
    for number in range(200):
        name = random.choice(names)
        words = [name, *random.choices([*ODD, *ids[-3:]], k=random.choice([0, 0, 1, 1, 2, 3, 5]))]
        if name in BEGINNINGS and random.random() < 0.8:
            words[1:1] = random.choice(BEGINNINGS[name]).split()
        if name == b"getjob" and random.random() < 0.8:
            words += [b"from", random.choice([b"q", b"r"])]
        said = wire.ask(request(*words) * random.choice([1, 1, 2, 3]))
        ids += [line[1:] for line in said.split(b"\r\n") if line.startswith(b"+D-")]
        server.context.password = b""
        if wire.peer.outbox.closing or wire.peer.worker.waiting or wire.peer.silence or not wire.peer.authorized:
            wire.leave()
            wire = server.client()
        if not number % 50:
            wire.advance(1_000)
    return len(ids)
