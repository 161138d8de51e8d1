"""Commands about jobs of other nodes need the right on the tube of the job, as at the node that owns it. No socket."""

from collections.abc import Callable, Iterator

import pytest

from nsqd.cluster.remote_jobs.job_owners import KEPT, KEPT_WITH_RIGHTS, MOST_RIGHTS
from nsqd.cluster.wire.frames import FrameKind
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.protocols.beanstalk import rights as beanstalk
from nsqd.protocols.beanstalk.client import UNAUTHORIZED
from nsqd.protocols.disque.arguments import COMMANDS
from shared.audit.event import Event, Outcome
from shared.auth.auth_file import Identity
from shared.auth.rules import MOST_DUMPED, Rights, Rule
from shared.auth.verbs import Verb
from tests.cases import each
from tests.nsqd.cluster.stations import Cluster, Station, ask, nodes
from tests.nsqd.core.promoted import PromotedLog
from tests.nsqd.protocols.beanstalk.wire import Wire as TubeWire
from tests.nsqd.protocols.disque.wire import Wire, request
from tests.nsqd.protocols.rights.proofs import Proofs

BY_ID = sorted(name for name, command in COMMANDS.items() if command.need.jobs)
LINES = {
    b"peek ": b"peek %d", b"stats-job ": b"stats-job %d", b"kick-job ": b"kick-job %d", b"delete ": b"delete %d",
    b"delete-batch ": b"delete-batch %d",
}  # fmt: skip
HELD = {b"delete ": b"delete %d", b"release ": b"release %d 1 0", b"bury ": b"bury %d 1", b"touch ": b"touch %d"}


class Some(Proofs):
    """A file in which every token is that of one identity with these rules."""

    def __init__(self, *rules: Rule, scope: tuple[str, ...] = ("*",)) -> None:
        super().__init__()
        self.identity = Identity("one", "token", (), Rights(rules, scope))

    def with_token(self, secret: bytes) -> Identity | None:
        return self.identity


def on(verb: Verb, *topics: str) -> Some:
    return Some(Rule(frozenset({verb}), topics))


OTHER = "other"
GRANTS: dict[str, Callable[[Verb], Some]] = {
    "the tube": lambda verb: on(verb, "two"), "a pattern": lambda verb: on(verb, "re:tw.", OTHER),
    "everything": lambda verb: on(verb, "*"), "all in scope": lambda verb: Some(Rule(frozenset({verb})), scope=("t*",)),
    "another tube": lambda verb: on(verb, OTHER), "a pattern of others": lambda verb: on(verb, "tw", "two?", "*x"),
    "out of scope": lambda verb: Some(Rule(frozenset({verb})), scope=("o*",)),
    "another verb": lambda verb: Some(Rule(frozenset(Verb) - {verb}, ("two",)), Rule(frozenset({verb}), (OTHER,))),
    "a channel": lambda verb: Some(Rule(frozenset({verb}), ("two",), ("c",)), Rule(frozenset({verb}), (OTHER,))),
    "no right": lambda verb: Some(Rule(frozenset(Verb) - {verb})), "nothing": lambda verb: Some(),
}  # fmt: skip
ALLOWED = ("the tube", "a pattern", "everything", "all in scope")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two nodes: jobs are put on the first, in the tube `two`."""
    cluster = Cluster(2)
    yield cluster
    cluster.settle()


def known(station: Station, proofs: Proofs) -> Wire:
    station.context.proofs = proofs
    client = station.client()
    assert client.do("AUTH", "x") == "OK"
    return client


def known_by_tubes(station: Station, proofs: Proofs) -> TubeWire:
    station.tubes_context.proofs = proofs
    client = station.tube_client()
    assert client.ask(b"auth x\r\n") == b"AUTHORIZED\r\n"
    return client


def borrowed(cluster: Cluster, *topics: str) -> tuple[TubeWire, int]:
    """A client of the second node, with the right to these tubes, that has a job of the first one, and the job's id."""
    a, b = cluster.stations
    client = known_by_tubes(b, on(Verb.CONSUME, *topics))
    client.ask(b"watch two\r\n")
    assert client.ask(b"ignore default\r\nreserve\r\n") == b"WATCHING 1\r\n"
    cluster.settle()
    job_id = int(a.tube_client().ask(b"use two\r\nput 0 0 60 1\r\nx\r\n").split()[-1])
    cluster.settle()
    assert client.said() == b"RESERVED %d 1\r\nx\r\n" % job_id
    return client, job_id


def shown(station: Station, job_id: str) -> object:
    return station.client().show(job_id)


@each("command", BY_ID)
@each("granted", GRANTS, cluster=lambda: Cluster(2))
def test_a_command_of_disque_is_answered_at_another_node_as_at_the_owner(
    cluster: Cluster, command: bytes, granted: str
) -> None:
    verb = COMMANDS[command].need.verb
    a, b = cluster.stations
    ids = [a.client().add("two", body, "RETRY", 60) for body in (b"1", b"2")]
    before = [shown(a, one) for one in ids]
    proofs = GRANTS[granted](verb)
    far = ask(cluster, known(b, proofs), command, ids[0])
    is_refused = isinstance(far, str) and far.startswith("-NOPERM")
    assert is_refused is (granted not in ALLOWED), far
    if is_refused:
        assert [shown(a, one) for one in ids] == before
    near = known(a, proofs).do(command, ids[1])
    if command == b"show":
        assert type(near) is type(far)
    else:
        assert near == far


@each("verb", sorted(LINES))
@each("granted", GRANTS, cluster=lambda: Cluster(2))
def test_a_command_of_beanstalkd_is_answered_at_another_node_as_at_the_owner(
    cluster: Cluster, verb: bytes, granted: str
) -> None:
    right = beanstalk.NEEDS[verb].verb
    a, b = cluster.stations
    putter = a.tube_client()
    putter.ask(b"use two\r\n")
    first, second = (int(putter.ask(b"put 0 50 60 1\r\nx\r\n").split()[1]) for _ in range(2))
    before = putter.ask(b"stats-job %d\r\n" % first)
    proofs = GRANTS[granted](right)
    client = known_by_tubes(b, proofs)
    client.send(LINES[verb] % first + b"\r\n")
    cluster.settle()
    far = client.said()
    assert (far == UNAUTHORIZED) is (granted not in ALLOWED), far
    if far == UNAUTHORIZED:
        assert putter.ask(b"stats-job %d\r\n" % first) == before
    near = known_by_tubes(a, proofs).ask(LINES[verb] % second + b"\r\n")
    assert near.replace(b"%d" % second, b"%d" % first) == far


@pytest.mark.parametrize("verb", sorted(HELD))
def test_a_client_that_has_lost_its_right_does_nothing_to_the_job_that_it_has(cluster: Cluster, verb: bytes) -> None:
    a, _ = cluster.stations
    client, job_id = borrowed(cluster, "two")
    proofs = client.peer.credential._proofs
    proofs.identity = on(Verb.CONSUME, "other").identity
    client.peer.rights_changed()
    client.send(HELD[verb] % job_id + b"\r\n")
    cluster.settle()
    assert client.said() == UNAUTHORIZED
    assert b"state: reserved\n" in a.tube_client().ask(b"stats-job %d\r\n" % job_id)
    proofs.identity = on(Verb.CONSUME, "two").identity
    client.peer.rights_changed()
    client.send(HELD[verb] % job_id + b"\r\n")
    cluster.settle()
    assert client.said() in (b"DELETED\r\n", b"RELEASED\r\n", b"BURIED\r\n", b"TOUCHED\r\n")


def test_an_owner_does_nothing_of_a_command_if_one_of_the_jobs_is_refused() -> None:
    cluster, a, b, c = nodes(3)
    mine, foreign = a.client().add("two"), a.client().add("foreign")
    elsewhere = c.client().add("two")
    client = known(b, on(Verb.CONSUME, "two"))
    assert str(ask(cluster, client, "ACKJOB", mine, foreign, elsewhere)).startswith("-NOPERM")
    assert shown(a, mine)
    assert shown(a, foreign)
    assert not shown(c, elsewhere)
    assert b.jobs.owners.kept == 0
    assert ask(cluster, client, "ACKJOB", mine, elsewhere) == 1


def test_a_waiting_client_is_lent_what_it_may_have_and_nothing_else(cluster: Cluster) -> None:
    a, b = cluster.stations
    client = known(b, on(Verb.CONSUME, "two"))
    assert str(client.do("GETJOB", "FROM", "two", "foreign")).startswith("-NOPERM")
    client.replies(request("GETJOB", "FROM", "two"))
    cluster.settle()
    a.client().add("foreign")
    job_id = cluster.add(a, "two", b"x")
    assert client.replies() == [[[b"two", job_id.encode(), b"x"]]]
    assert ask(cluster, client, "WORKING", job_id) > 0
    assert ask(cluster, client, "ACKJOB", job_id) == 1


def test_without_an_auth_file_a_node_asks_for_everything(cluster: Cluster) -> None:
    a, b = cluster.stations
    a.context.proofs = on(Verb.CONSUME, "one")
    b_client = cluster.waiting(b, "two")
    a.context.proofs = None
    job_id = cluster.add(a, "two", b"x")
    assert len(b_client.replies()) == 1
    assert ask(cluster, b_client, "ACKJOB", job_id) == 1


@each("granted", GRANTS, cluster=lambda: Cluster(2))
def test_an_acknowledgement_is_kept_with_the_rights_of_its_client(cluster: Cluster, granted: str) -> None:
    a, b = cluster.stations
    job_id = a.client().add("two", b"x")
    cluster.cut(a, b)
    client = known(b, GRANTS[granted](Verb.CONSUME))
    said = client.do("ACKJOB", job_id)
    assert said == 0 or str(said).startswith("-NOPERM")
    b.context.proofs = None
    assert b.client().do("QSCAN") == b.client().do("JSCAN") == [b"0", []]  # no client is shown where it is kept
    cluster.connect(a, b)
    cluster.advance(3_000)
    assert (shown(a, job_id) is None) is (granted in ALLOWED)
    kept = (b.node.broker.tubes.tube(name) for name in (KEPT, KEPT_WITH_RIGHTS))
    assert [tube.jobs.count for tube in kept if tube is not None] in ([], [0])


@pytest.mark.parametrize("tube", ["two", "foreign"])
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_a_kept_acknowledgement_is_applied_to_a_promoted_log_if_it_may_be(
    cluster: Cluster, tube: str, is_on_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = cluster.stations
    log = PromotedLog(b.node, 1)
    message_id = log.broker.tubes.put_into(tube, [b"1"], JobOptions(was_put=True))
    log.broker.seal()
    cluster.cut(a, b)
    assert known(b, on(Verb.CONSUME, "two")).do("ACKJOB", b.context.ids.encode(message_id, 0, 60)) == 0
    kept = b.node.broker.tubes.tube(KEPT_WITH_RIGHTS)
    assert kept.jobs.count == 1
    if is_on_disk:
        body = Tube.body

        def read(self: Tube, job: Job) -> bytes | None:
            if self is kept:
                raise Reading(self)
            return body(self, job)

        monkeypatch.setattr(Tube, "body", read)
        b.jobs.attached(log.broker)
        log.attach()
        cluster.advance(1_000)
        assert kept.jobs.count == 1
        assert log.broker.tubes.find(message_id) is not None
        monkeypatch.setattr(Tube, "body", body)
        kept.read_completed()
    else:
        b.jobs.attached(log.broker)
        log.attach()
    assert kept.jobs.count == 0
    assert (log.broker.tubes.find(message_id) is None) is (tube == "two")


def test_a_deletion_of_a_borrowed_job_is_kept_with_the_rights_of_its_client(cluster: Cluster) -> None:
    a, b = cluster.stations
    client, job_id = borrowed(cluster, "two", "default")
    cluster.cut(a, b)
    assert client.ask(b"delete %d\r\n" % job_id) == b"NOT_FOUND\r\n"
    cluster.connect(a, b)
    cluster.advance(3_000)
    assert a.tube_client().ask(b"peek %d\r\n" % job_id) == b"NOT_FOUND\r\n"


def test_rights_with_too_many_patterns_reach_no_other_node(cluster: Cluster) -> None:
    a, b = cluster.stations
    job_id = a.client().add("two")
    names = [f"queue-{number:05}" for number in range(MOST_DUMPED // 10)]
    client = known(b, on(Verb.CONSUME, "two", *names))
    assert str(client.do("ACKJOB", job_id)).startswith("-NOPERM")
    assert shown(a, job_id)
    cluster.cut(a, b)
    client = known(b, on(Verb.CONSUME, "two", *names[: MOST_RIGHTS // 10]))
    assert client.do("ACKJOB", job_id) == 0
    assert b.jobs.owners.kept == 0


@pytest.mark.parametrize("text", [
    b"x", b"[]", b'["consume", ["two"]]', b'["consume", "two", ["*"]]', b'["none", ["two"], ["*"]]',
    b'[["consume"], ["two"], ["*"]]', b'["consume", ["re:("], ["*"]]', b'["consume", [""], ["*"]]',
    b'["consume", [' + b'"two",' * MOST_DUMPED + b'"two"], ["*"]]', b"[" * 60_000,
])  # fmt: skip
def test_what_are_no_rights_allow_nothing(cluster: Cluster, text: bytes) -> None:
    a, b = cluster.stations
    job_id = a.client().add("two")
    replies: list[bytes] = []
    b.jobs.lending.ask({1}, text, request("ACKJOB", job_id), replies.extend)
    cluster.settle()
    assert [reply.split()[0] for reply in replies] == [b"-NOPERM"]
    assert shown(a, job_id)


def test_what_the_owner_refuses_is_recorded_where_the_client_is(cluster: Cluster) -> None:
    a, b = cluster.stations
    events: list[Event] = []
    b.context.audit = b.tubes_context.audit = events.append
    two, other = a.client().add("two", b"x", "RETRY", 60), a.client().add("other", b"x", "RETRY", 60)
    client = known(b, on(Verb.ACT, "two"))
    assert ask(cluster, client, "DEQUEUE", two) == 1
    assert str(ask(cluster, client, "DEQUEUE", other)).startswith("-NOPERM")
    outcomes = [event.outcome for event in events if event.action == "DEQUEUE"]
    assert outcomes == [Outcome.UNCERTAIN, Outcome.DONE, Outcome.UNCERTAIN, Outcome.REFUSED]
    events.clear()
    number = int(a.tube_client().ask(b"use other\r\nput 0 50 60 1\r\nx\r\n").split()[-1])
    tube_client = known_by_tubes(b, on(Verb.ACT, "two"))
    tube_client.send(b"kick-job %d\r\n" % number)
    cluster.settle()
    assert tube_client.said() == UNAUTHORIZED
    assert [(event.action, event.outcome) for event in events] == [("kick-job", Outcome.REFUSED)]
    assert FrameKind.ASK in cluster.kinds
