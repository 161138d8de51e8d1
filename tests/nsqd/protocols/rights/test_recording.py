"""What clients of each protocol leave in the audit: refusals, and the commands of operators, with names only."""

from nsqd.protocols.beanstalk.operators import SLICE
from nsqd.protocols.nsq.authorization import PUBLISH, Authorization, Rule
from nsqd.protocols.nsq.settings import Settings
from shared.audit.event import UNKNOWN, Event
from shared.auth.verbs import Verb
from tests.nsqd.core.node import SECOND
from tests.nsqd.protocols.nsq import wire as nsq
from tests.nsqd.protocols.nsq.wire import body
from tests.nsqd.protocols.rights.limited_clients import beanstalk_client, disque_client
from tests.nsqd.protocols.rights.proofs import Proofs, token
from tests.nsqd.protocols.rights.test_beanstalk import OneRight

WRONG = b"pst_" + b"x" * 43


def short(event: Event) -> tuple[str, str, str, str]:
    return event.who, event.action, event.target, str(event.outcome)


# NSQ


def nsq_client(events: list[Event], asks: bool = False) -> nsq.Wire:
    return nsq.Wire(None, Settings(auth_required=True), proofs=Proofs("orders"), asks=asks, audit=events.append)


def test_refusals_of_clients_of_nsq_by_the_name_that_an_authorization_server_gave() -> None:
    events: list[Event] = []
    nsq_client(events).send(b"AUTH\n" + body(WRONG))
    nsq_client(events).send(b"PUB orders\n" + body(b"x"))
    known = b"AUTH\n" + body(token("orders"))
    nsq_client(events).send(known + b"SUB orders web\n")
    nsq_client(events).send(known + b"PUB other\n" + body(b"x"))
    assert [short(event) for event in events] == [
        ("", "AUTH", "", "refused"), ("", "PUB", "orders", "refused"), ("orders", "SUB", "orders web", "refused"),
        ("orders", "PUB", "other", "refused"),
    ]  # fmt: skip
    assert {(event.port, event.address) for event in events} == {("nsq", "10.0.0.1")}
    events: list[Event] = []
    client = nsq_client(events, asks=True).send(b"AUTH\n" + body(b"secret"))
    rules = (Rule("mine", (".*",), frozenset({PUBLISH})),)
    client.answer(Authorization("ann", "", client.node.now + SECOND, rules))
    client.node.turn()
    client.send(b"PUB other\n" + body(b"x"))
    ((who, by),) = [(event.who, event.by) for event in events]
    assert (who, by) == ("ann", "authorization server")


def test_what_is_allowed_and_other_errors_leave_nothing() -> None:
    events: list[Event] = []
    client = nsq_client(events).send(b"AUTH\n" + body(token("orders")) + b"PUB orders\n" + body(b"x"))
    client.send(b"NONSENSE\n")
    assert client.replies()[-1].startswith(b"E_INVALID")
    rights = OneRight(*Verb, topics=("*",))
    worker = beanstalk_client(rights, audit=events.append)
    worker.ask(b"auth x\r\nuse mail\r\nwatch mail\r\nput 0 0 9 4\r\nbody\r\nreserve\r\ntouch 1\r\nbury 1 0\r\n")
    assert worker.ask(b"peek 1\r\ndelete 1\r\n").endswith(b"DELETED\r\n")
    queue = disque_client(rights, audit=events.append)
    assert queue.do("AUTH", "x") == "OK"
    for _ in range(3):
        job_id = queue.add("work")
        queue.get("work")
        queue.do("ACKJOB", job_id)
        queue.do("PING")
    assert events == []


# beanstalkd


def test_commands_of_operators_of_beanstalkd() -> None:
    events: list[Event] = []
    client = beanstalk_client(OneRight(*Verb, topics=("*",)), audit=events.append)
    client.ask(b"auth x\r\nuse mail\r\nput 0 60 9 4\r\nbody\r\nput 0 60 9 4\r\nbody\r\n")
    client.ask(
        b"kick 1\r\nkick-job 2\r\nkick-job 2\r\npause-tube mail 9\r\nmove-job 2 post\r\nclear-tube mail\r\nkick-job 99\r\n"
    )
    assert [(*short(event), event.count) for event in events] == [
        ("one", "kick", "mail", "done", 1),
        ("one", "kick-job", "mail 2", "done", UNKNOWN),
        ("one", "kick-job", "mail 2", "failed", UNKNOWN),
        ("one", "pause-tube", "mail", "done", UNKNOWN),
        ("one", "move-job", "mail 2 post", "done", UNKNOWN),
        ("one", "clear-tube", "mail", "done", 1),
        ("one", "kick-job", "99", "failed", UNKNOWN),
    ]


def test_refusals_of_clients_of_beanstalkd() -> None:
    events: list[Event] = []
    stranger = beanstalk_client(Proofs("worker"), audit=events.append)
    stranger.ask(b"auth " + WRONG + b"\r\nput 0 0 9 4\r\nbody\r\nkick-job 7\r\nstats\r\n")
    assert [short(event) for event in events] == [
        ("", "auth", "", "refused"), ("", "put", "default", "refused"), ("", "kick-job", "7", "refused"),
        ("", "stats", "", "refused"),
    ]  # fmt: skip


# Disque


def test_commands_of_operators_of_disque() -> None:
    events: list[Event] = []
    client = disque_client(OneRight(*Verb, topics=("*",)), audit=events.append)
    assert client.do("AUTH", "x") == "OK"
    job_id = client.add("work")
    for words in (
        ("pause", "work", "in"), ("PAUSE", "other", "STATE"), ("DEQUEUE", job_id),
        ("enqueue", job_id, job_id, job_id, job_id), ("CONFIG", "SET", "nothing", "secret"), ("CONFIG", "GET", "port"),
        ("CLIENT", "KILL", "192.0.2.1:1"), ("CLUSTER", "FORGET", "x" * 40), ("LOADJOB", "secret"),
        ("DEBUG", "ERROR", "secret"), ("SHUTDOWN",), ("CLIENT", "LIST"), ("CLUSTER", "INFO"), ("INFO",),
        ("QLEN", "work"), ("CONFIG", "SET", "requirepass", "secret"),
    ):  # fmt: skip
        client.do(*words)
    job = job_id if isinstance(job_id, str) else job_id.decode()
    assert [short(event) for event in events] == [
        ("one", "PAUSE", "work", "done"),
        ("one", "DEQUEUE", job, "done"),
        ("one", "ENQUEUE", f"{job} {job} {job}", "done"),
        ("one", "CONFIG SET", "nothing", "failed"),
        ("one", "CONFIG GET", "port", "done"),
        ("one", "CLIENT KILL", "192.0.2.1:1", "failed"),
        ("one", "CLUSTER FORGET", "x" * 40, "failed"),
        ("one", "LOADJOB", "", "failed"),
        ("one", "DEBUG ERROR", "", "done"),
        ("one", "SHUTDOWN", "", "failed"),
        ("one", "CONFIG SET", "requirepass", "done"),
    ]


def test_refusals_of_clients_of_disque_and_what_a_stranger_sends_is_bounded() -> None:
    events: list[Event] = []
    client = disque_client(Proofs("worker"), audit=events.append)
    client.do("ADDJOB", "work", "secret", 0)
    client.do("AUTH", WRONG)
    client.do("HELLO", "3", "AUTH", "any", WRONG)
    client.do("AUTH", token("worker"))
    client.do("ADDJOB", "other", "secret", 0)
    client.do("CONFIG", "SET", "requirepass", "secret")
    assert [short(event) for event in events] == [
        ("", "ADDJOB", "work", "refused"), ("", "AUTH", "", "refused"), ("", "AUTH", "", "refused"),
        ("worker", "ADDJOB", "other", "refused"), ("worker", "CONFIG SET", "requirepass", "refused"),
    ]  # fmt: skip
    events: list[Event] = []
    client = disque_client(Proofs("worker"), audit=events.append)
    client.do("CONFIG", b"\xff" * 100_000, b"\xff" * 100_000)
    client.do("CONFIG", "g" * 100, b"x" * 100_000)
    client.do("ACKJOB", *[b"\xff" * 10_000] * 50)
    assert [(event.action, len(event.target) <= 3000) for event in events] == [
        ("CONFIG", True),
        ("CONFIG", True),
        ("ACKJOB", True),
    ]


def test_a_command_of_several_turns_is_recorded_when_it_begins_and_without_an_auth_file_without_a_name() -> None:
    events: list[Event] = []
    client = beanstalk_client(None, audit=events.append)
    client.ask(b"use mail\r\n" + b"put 0 60 9 0\r\n\r\n" * (SLICE + 1))
    assert client.ask(b"clear-tube mail\r\n") == b"CLEARED %d\r\n" % (SLICE + 1)
    assert [(*short(event), event.count) for event in events] == [
        ("", "clear-tube", "mail", "uncertain", UNKNOWN),
        ("", "clear-tube", "mail", "done", SLICE + 1),
    ]
