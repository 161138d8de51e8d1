"""Clients of Disque and the auth file: every command without a token, with a wrong one, and with each right."""

from nsqd.protocols.disque.arguments import COMMANDS
from shared.auth.verbs import Verb
from tests.cases import each
from tests.nsqd.protocols.disque.wire import Wire, request
from tests.nsqd.protocols.rights.limited_clients import disque_client
from tests.nsqd.protocols.rights.proofs import Proofs, token
from tests.nsqd.protocols.rights.test_beanstalk import OneRight

NO_AUTH = "-NOAUTH Authentication required."
BY_SUBCOMMAND = (b"client", b"cluster")
# the arguments of each command, about the queue `work` and its job
WORDS: dict[bytes, tuple[str | bytes, ...]] = {
    b"addjob": ("work", "x", "0"),
    b"getjob": ("NOHANG", "FROM", "work"),
    b"qpeek": ("work", "1"),
    b"pause": ("work", "state"),
    b"qlen": ("work",),
    b"qstat": ("work",),
    b"slowlog": ("len",),
    b"latency": ("latest",),
    b"debug": ("x",),
    b"config": ("get", "port"),
    b"loadjob": ("x",),
}


def client(proofs: Proofs, *words: str | bytes) -> Wire:
    """A client that has sent a command, which is not refused."""
    wire = disque_client(proofs)
    if words:
        assert wire.do(*words) == "OK"
    return wire


def words_of(command: bytes, job_id: str) -> tuple[str | bytes, ...]:
    if COMMANDS[command].need.jobs:
        return command, job_id
    return command, *WORDS.get(command, ())


@each("secret", [b"", b"pst_" + b"x" * 43, b"guess"])
def test_a_stranger_is_refused_every_command(secret: bytes) -> None:
    for command in sorted(set(COMMANDS) - {b"auth", b"hello", b"shutdown"}):
        wire = client(Proofs("worker"))
        if secret:
            assert wire.do("AUTH", secret) == "-ERR invalid password"
            assert str(wire.do("HELLO", "3", "AUTH", "any", secret)).startswith("-WRONGPASS")
        words = words_of(command, wire.context.ids.encode(5, 60, 60).decode())
        if command in BY_SUBCOMMAND:
            words = (command, "list" if command == b"client" else "info")
        assert wire.do(*words) == NO_AUTH


@each("command", sorted(set(COMMANDS) - {b"auth", b"shutdown", b"hello", b"monitor", *BY_SUBCOMMAND}))
def test_a_command_needs_its_right_and_no_other(command: bytes) -> None:
    need, proofs = COMMANDS[command].need, OneRight(Verb.PUBLISH)
    on_node = need.verb is not None and not (need.queue or need.jobs or need.behind)
    wire = client(proofs, "AUTH", "x")
    for right in Verb:
        proofs.identity = OneRight(Verb.PUBLISH).identity
        wire.peer.rights_changed()
        job_id = wire.add("work")
        proofs.identity = OneRight(right, topics=("*",) if on_node else ("work",)).identity
        wire.peer.rights_changed()
        said = wire.do(*words_of(command, job_id))
        is_refused = isinstance(said, str) and said.startswith("-NOPERM")
        assert is_refused is not (need.verb in (None, right)), (said, right)


def test_subcommands_need_what_they_do_and_the_rights_of_one_queue_are_none_of_another() -> None:
    for verb, allowed in ((Verb.STATS, True), (Verb.ADMIN, False)):
        wire = client(OneRight(verb, topics=("*",)), "AUTH", "x")
        assert wire.do("CLIENT", "SETNAME", "a") == "OK"
        for words in (("CLIENT", "LIST"), ("CLUSTER", "INFO"), ("CLUSTER", "MYID")):
            assert str(wire.do(*words)).startswith("-NOPERM") is not allowed
        for words in (("CLIENT", "KILL", "1:1"), ("CLUSTER", "FORGET", "x"), ("CLUSTER", "LEAVING")):
            assert str(wire.do(*words)).startswith("-NOPERM") is allowed
    wire = client(Proofs("worker"), "AUTH", token("worker"))
    job_id = wire.add("work")
    for words in (
        ("ADDJOB", "other", "x", 0),
        ("GETJOB", "NOHANG", "FROM", "work", "other"),
        ("GETJOB", "NOHANG", "FROM", "other"),
    ):
        assert str(wire.do(*words)).startswith("-NOPERM")
    assert wire.get("work") == [(b"work", job_id, b"body")]
    assert wire.do("ACKJOB", job_id) == 1
    assert wire.context.queues.length("other") == 0


def test_commands_that_come_again_and_again_lose_their_right_too() -> None:
    proofs = Proofs("worker", "orders")
    wire = client(proofs, "AUTH", token("worker"))
    wire.context.proofs = proofs
    add = request("ADDJOB", "work", "x", 0)
    assert len(wire.replies(add * 3)) == 3
    assert wire.do("AUTH", token("orders")) == "OK"
    assert all(str(one).startswith("-NOPERM") for one in wire.replies(add * 3))


def test_a_waiting_worker_gets_an_error_when_its_right_ends() -> None:
    proofs = Proofs("worker")
    wire = client(proofs)
    assert isinstance(wire.do("HELLO", "2", "AUTH", "default", token("worker")), list)
    assert wire.add("work")
    assert wire.get("work")
    idle = client(proofs, "AUTH", token("worker"))
    assert wire.replies(request("GETJOB", "FROM", "work")) == []
    wire.peer.rights_changed()
    assert wire.replies() == []
    proofs.set("orders")
    wire.peer.rights_changed()
    assert wire.replies() == [NO_AUTH]
    assert wire.peer.outbox.closing
    wire.node.broker.check()
    idle.peer.rights_changed()
    assert idle.replies(request("PING")) == [NO_AUTH]


def test_who_monitors_is_shown_bodies_and_needs_the_right_to_read_them_as_long_as_it_does() -> None:
    proofs = OneRight(Verb.ADMIN, topics=("*",))
    wire = client(proofs, "AUTH", "x")
    assert str(wire.do("MONITOR")).startswith("-NOPERM")
    proofs.identity = OneRight(Verb.ADMIN, Verb.READ, topics=("*",)).identity
    wire.peer.rights_changed()
    assert wire.do("MONITOR") == "OK"
    proofs.identity = OneRight(Verb.ADMIN, Verb.PUBLISH, topics=("*",)).identity
    wire.peer.rights_changed()
    assert not wire.context.monitors
    other = wire.another()
    other.do("AUTH", "x")
    other.add("work", "secret")
    assert wire.replies() == []


@each("right", [Verb.CREATE, Verb.PUBLISH])
def test_a_pause_makes_a_queue_only_for_who_may_make_one(right: Verb) -> None:
    proofs = OneRight(Verb.ACT, topics=("*",))
    wire = client(proofs, "AUTH", "x")
    for state in ("in", "out", "all"):
        assert str(wire.do("PAUSE", "new", state)).startswith("-NOPERM")
    assert wire.do("PAUSE", "new", "state") == wire.do("PAUSE", "new", "none") == "none"
    assert list(wire.node.broker.topics) == []
    for verbs, state in (((Verb.ACT, right), "in"), ((Verb.ACT,), "all")):  # the second time it is there
        proofs.identity = OneRight(*verbs, topics=("*",)).identity
        wire.peer.rights_changed()
        assert wire.do("PAUSE", "new", state) == state
