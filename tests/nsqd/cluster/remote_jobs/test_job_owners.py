"""Clients of beanstalkd on several nodes: they are lent jobs, and commands reach the owner of a job. No socket."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from nsqd.cluster.remote_jobs.job_owners import KEPT
from nsqd.cluster.wire.frames import FrameKind
from nsqd.protocols.beanstalk.borrower import TOUCHED
from nsqd.protocols.beanstalk.guest import read_request
from penstock.protocol.headers import pack_headers
from tests.nsqd.cluster.stations import Cluster, Station
from tests.nsqd.cluster.stations import waiting as disque_client
from tests.nsqd.protocols.beanstalk.wire import Wire

PUT = b"put 7 0 %d 1\r\nx\r\n"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two nodes: jobs are put on the first."""
    cluster = Cluster(2)
    yield cluster
    cluster.settle()


def put(cluster: Cluster, station: Station, ttr: int = 60) -> int:
    word, number = station.tube_client().ask(PUT % ttr).split()
    assert word == b"INSERTED"
    cluster.settle()
    return int(number)


def waiting(cluster: Cluster, station: Station, command: bytes = b"reserve\r\n") -> Wire:
    client = station.tube_client()
    assert client.ask(command) == b""
    cluster.settle()
    return client


def ask(cluster: Cluster, client: Wire, line: bytes) -> bytes:
    """The reply of a command for which other nodes are asked."""
    client.send(line)
    cluster.settle()
    return client.said()


def borrowed(cluster: Cluster, ttr: int = 60) -> tuple[Wire, int]:
    """A client of the second node that has a job of the first one."""
    client = waiting(cluster, cluster.stations[1])
    number = put(cluster, cluster.stations[0], ttr)
    assert client.said() == b"RESERVED %d 1\r\nx\r\n" % number
    return client, number


def state(cluster: Cluster, number: int) -> dict[str, str]:
    """Return the fields of the job, from its owner."""
    text = cluster.stations[0].tube_client().ask(b"stats-job %d\r\n" % number)
    pairs = (line.partition(": ") for line in text.decode().split("---\n")[-1].splitlines())
    return {key: value for key, _, value in pairs if value}


def test_a_waiting_reserve_gets_a_job_that_is_put_anywhere(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    assert state(cluster, number)["state"] == "reserved"
    assert cluster.stations[0].tube_client().ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert ask(cluster, client, b"delete %d\r\n" % number) == b"DELETED\r\n"
    assert state(cluster, number) == {}
    assert ask(cluster, client, b"delete %d\r\n" % number) == b"NOT_FOUND\r\n"
    client.leave()


def test_what_is_done_to_a_borrowed_job_is_done_by_its_owner(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    assert ask(cluster, client, b"touch %d\r\n" % number) == TOUCHED
    assert ask(cluster, client, b"release %d 3 0\r\n" % number) == b"RELEASED\r\n"
    assert (state(cluster, number)["pri"], state(cluster, number)["releases"]) == ("3", "1")
    for line in (b"touch %d\r\n", b"release %d 3 0\r\n", b"bury %d 3\r\n"):
        assert ask(cluster, client, line % number) == b"NOT_FOUND\r\n"
    client.send(b"reserve\r\n")
    cluster.settle()
    assert client.said() == b"RESERVED %d 1\r\nx\r\n" % number
    assert ask(cluster, client, b"bury %d 9\r\n" % number) == b"BURIED\r\n"
    assert state(cluster, number)["state"] == "buried"
    assert ask(cluster, client, b"kick-job %d\r\n" % number) == b"KICKED\r\n"
    assert ask(cluster, client, b"release %d 3 5\r\n" % number) == b"NOT_FOUND\r\n"


def test_every_node_shows_and_deletes_every_job(cluster: Cluster) -> None:
    number = put(cluster, cluster.stations[0])
    other = cluster.stations[1].tube_client()
    assert ask(cluster, other, b"peek %d\r\n" % number) == b"FOUND %d 1\r\nx\r\n" % number
    assert b"state: ready\n" in ask(cluster, other, b"stats-job %d\r\n" % number)
    assert ask(cluster, other, b"delete %d\r\n" % number) == b"DELETED\r\n"
    for line in (b"peek %d\r\n", b"stats-job %d\r\n", b"kick-job %d\r\n"):
        assert ask(cluster, other, line % number) == b"NOT_FOUND\r\n"


def test_headers_reach_clients_of_other_nodes_that_asked(cluster: Cluster) -> None:
    content = pack_headers((("a", "1"),)) + b"x"
    client = cluster.stations[1].tube_client()
    assert client.ask(b"headers\r\nreserve\r\n") == b"HEADERS\r\n"
    cluster.settle()
    owner = cluster.stations[0].tube_client()
    _, number = owner.ask(b"headers\r\nput 0 0 60 %d\r\n%s\r\n" % (len(content), content)).split()[1:]
    cluster.settle()
    assert client.said() == b"RESERVED %s %d\r\n%s\r\n" % (number, len(content), content)
    assert ask(cluster, client, b"peek %s\r\n" % number) == b"FOUND %s %d\r\n%s\r\n" % (number, len(content), content)


def test_only_the_client_that_has_a_job_may_act_on_it(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    for station in cluster.stations:
        other = station.tube_client()
        for line in (b"delete %d\r\n", b"release %d 1 0\r\n", b"touch %d\r\n", b"bury %d 1\r\n"):
            assert ask(cluster, other, line % number) == b"NOT_FOUND\r\n", (station.number, line)
    assert ask(cluster, client, b"delete %d\r\n" % number) == b"DELETED\r\n"


def test_commands_behind_one_that_waits_for_the_owner_are_answered_in_their_order(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    said = ask(cluster, client, b"delete %d\r\nuse t\r\nput 0 0 9 1\r\ny\r\ntouch 5\r\n" % number)
    assert said.split(b"\r\n")[:2] == [b"DELETED", b"USING t"]
    assert said.startswith(b"DELETED\r\nUSING t\r\nINSERTED ")
    assert said.endswith(b"NOT_FOUND\r\n")


def test_a_job_goes_back_when_its_client_goes(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    client.leave()
    cluster.settle()
    assert (state(cluster, number)["state"], state(cluster, number)["reserves"]) == ("ready", "1")
    assert state(cluster, number)["releases"] == "0"


def test_a_job_of_a_client_that_went_while_the_lender_was_away_goes_back_when_it_is_there_again(
    cluster: Cluster,
) -> None:
    client, number = borrowed(cluster)
    a, b = cluster.stations
    cluster.cut(a, b)
    client.leave()
    cluster.settle()
    assert state(cluster, number)["state"] == "reserved"
    cluster.connect(a, b)
    assert state(cluster, number)["state"] == "ready"


def test_jobs_of_a_node_that_has_restarted_are_ready_again(cluster: Cluster) -> None:
    _, number = borrowed(cluster)
    far = disque_client(cluster.stations[1], "default")
    cluster.settle()
    other = put(cluster, cluster.stations[0])  # a client of Disque has it, which has no connection to lose
    assert len(far.replies()) == 1
    a, b = cluster.stations
    cluster.cut(a, b)
    cluster.connect(a, cluster.restart(2))
    assert state(cluster, number)["state"] == "ready"
    assert state(cluster, other)["state"] == "reserved"


def test_the_time_to_run_ends_a_loan_and_a_touch_begins_it_again(cluster: Cluster) -> None:
    client, number = borrowed(cluster, ttr=5)
    cluster.advance(4_500)
    assert client.ask(b"reserve-with-timeout 0\r\n") == b"DEADLINE_SOON\r\n"
    assert ask(cluster, client, b"touch %d\r\n" % number) == TOUCHED
    assert client.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    cluster.advance(4_500)
    assert state(cluster, number)["state"] == "reserved"
    cluster.advance(600)
    assert (state(cluster, number)["state"], state(cluster, number)["timeouts"]) == ("ready", "1")
    assert client.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert ask(cluster, client, b"release %d 1 0\r\n" % number) == b"NOT_FOUND\r\n"
    client.leave()
    cluster.settle()
    assert state(cluster, number)["state"] == "ready"


def test_a_waiting_reserve_is_warned_of_the_end_of_a_loan(cluster: Cluster) -> None:
    client, _ = borrowed(cluster, ttr=5)
    client.send(b"reserve\r\n")
    client.advance(3_900)
    assert client.said() == b""
    client.advance(200)
    assert client.said() == b"DEADLINE_SOON\r\n"


def test_an_unreachable_leader_is_sent_a_deletion_later(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    a, b = cluster.stations
    cluster.cut(a, b)
    assert ask(cluster, client, b"delete %d\r\n" % number) == b"NOT_FOUND\r\n"
    assert ask(cluster, client, b"peek 7\r\n") == b"NOT_FOUND\r\n"
    kept = b.node.broker.tubes.tube(KEPT)
    assert kept.jobs.count == 1
    cluster.connect(a, b)
    cluster.advance(1_000)
    cluster.advance(1_000)
    assert state(cluster, number) == {}
    assert not kept.jobs.count


@pytest.mark.parametrize("opener", [0, 1])
def test_a_deletion_is_kept_if_a_node_has_a_log_that_it_does_not_serve_yet(cluster: Cluster, opener: int) -> None:
    client, number = borrowed(cluster)
    a, b = cluster.stations
    cluster.cut(a, b)
    cluster.connect(cluster.restart(1), b)
    cluster.stations[opener].cluster.has_unserved_log = True
    assert ask(cluster, client, b"delete %d\r\n" % number) == b"NOT_FOUND\r\n"
    assert b.node.broker.tubes.tube(KEPT).jobs.count == 1


def test_a_loan_of_which_the_confirmation_was_lost_goes_on(cluster: Cluster) -> None:
    a, b = cluster.stations
    client = waiting(cluster, b)
    cluster.holds = lambda source, target, kind: source == 2
    number = put(cluster, a)
    assert client.said().startswith(b"RESERVED")
    cluster.cut(a, b)
    cluster.holds = lambda source, target, kind: False
    cluster.connect(a, b)
    assert state(cluster, number)["state"] == "reserved"
    assert ask(cluster, client, b"release %d 1 0\r\n" % number) == b"RELEASED\r\n"


def test_a_client_that_went_takes_no_answer(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    client.peer.receive(b"release %d 2 0\r\n" % number, client.node.now)
    client.leave()
    cluster.settle()
    assert client.received == b""
    assert (state(cluster, number)["state"], state(cluster, number)["pri"]) == ("ready", "2")


def test_the_same_job_again_is_another_loan(cluster: Cluster) -> None:
    """A command of the client that had the job before does nothing to the reservation of the next one."""
    client, number = borrowed(cluster, ttr=1)
    cluster.advance(1_100)
    assert cluster.stations[0].tube_client().ask(b"reserve\r\n").startswith(b"RESERVED")
    for line in (b"touch %d\r\n", b"delete %d\r\n"):
        assert ask(cluster, client, line % number) == b"NOT_FOUND\r\n"


def test_disque_and_beanstalkd_wait_for_the_same_jobs(cluster: Cluster) -> None:
    a, b = cluster.stations
    first, second = waiting(cluster, b), disque_client(b, "default")
    cluster.settle()
    numbers = [put(cluster, a), put(cluster, a)]
    assert first.said() == b"RESERVED %d 1\r\nx\r\n" % numbers[0]
    (((_, job_id, _),),) = second.replies()
    assert second.context.ids.decode(job_id) == numbers[1]


def test_a_job_that_is_delivered_once_leaves_its_owner_with_the_loan(cluster: Cluster) -> None:
    a, b = cluster.stations
    client = waiting(cluster, b)
    job_id = cluster.add(a, "default", b"x", "RETRY", 0, "REPLICATE", 1)
    number = a.context.ids.decode(job_id.encode())
    assert client.said() == b"RESERVED %d 1\r\nx\r\n" % number
    assert ask(cluster, client, b"delete %d\r\n" % number) == b"NOT_FOUND\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"", b"delete 5", b"1 put 5", b"1 delete", b"1 delete x", b"1 reserve-job 5", b"1 delete 5\r\nquit", b"1 quit",
        b"12345678901 delete 5", b"1 delete 123456789012345678901", b"1 release 5 1 11111111111",
    ],
)  # fmt: skip
def test_other_nodes_may_ask_nothing_else(cluster: Cluster, request_: bytes) -> None:
    assert read_request(request_) is None
    replies: list[bytes] = []
    cluster.stations[0].jobs._execute(b"", request_, replies.append)
    assert replies == [b"-ERR other nodes may not ask that\r\n"]


def test_a_borrowed_job_whose_body_is_on_disk_is_shown(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    tube = cluster.stations[0].node.broker.tubes.tube("default")
    held = tube.extents
    tube.extents = SimpleNamespace(read=lambda ordinal: None)
    client.send(b"peek %d\r\n" % number)
    cluster.settle()
    assert client.said() == b""
    tube.extents = held
    tube.read_completed()
    cluster.settle()
    assert client.said() == b"FOUND %d 1\r\nx\r\n" % number


def test_delete_batch_deletes_jobs_of_other_nodes_too(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    own = put(cluster, cluster.stations[1])
    ready = put(cluster, cluster.stations[0])
    line = b"delete-batch %d %d %d 7 %d\r\nuse t\r\n" % (number, own, ready, number)
    assert ask(cluster, client, line) == b"DELETED_BATCH 3\r\nUSING t\r\n"
    assert state(cluster, number) == state(cluster, ready) == {}
    client.leave()


def test_what_a_client_gave_back_while_the_network_was_dead_comes_back(cluster: Cluster) -> None:
    client, number = borrowed(cluster, ttr=3600)
    a, b = cluster.stations
    cluster.holds = lambda source, target, kind: True  # neither node knows it yet
    client.leave()
    cluster.settle()
    cluster.cut(a, b)
    cluster.holds = lambda source, target, kind: False
    cluster.connect(a, b)
    assert state(cluster, number)["state"] == "ready"


def test_a_loan_that_came_too_late_while_the_network_was_dead_comes_back(cluster: Cluster) -> None:
    a, b = cluster.stations
    client = waiting(cluster, b)
    client.leave()
    cluster.holds = lambda source, target, kind: kind is FrameKind.WANT or source == 2
    number = put(cluster, a, 3600)
    assert state(cluster, number)["state"] == "reserved"
    cluster.cut(a, b)
    cluster.holds = lambda source, target, kind: False
    cluster.connect(a, b)
    assert (state(cluster, number)["state"], state(cluster, number)["reserves"]) == ("ready", "0")


def test_a_return_that_is_repeated_does_nothing_to_the_next_loan(cluster: Cluster) -> None:
    a, b = cluster.stations
    client = waiting(cluster, b)
    client.leave()
    cluster.holds = lambda source, target, kind: kind is FrameKind.WANT
    number = put(cluster, a, 3600)  # lent, and returned uncounted
    cluster.holds = lambda source, target, kind: False
    assert state(cluster, number)["reserves"] == "0"
    other = waiting(cluster, b)
    assert other.said() == b"RESERVED %d 1\r\nx\r\n" % number
    cluster.cut(a, b)
    cluster.connect(a, b)  # the RETURN is sent again
    assert (state(cluster, number)["state"], state(cluster, number)["reserves"]) == ("reserved", "1")


def test_a_paused_tube_is_lent_nothing(cluster: Cluster) -> None:
    a, b = cluster.stations
    put(cluster, b)
    operator = b.tube_client()
    operator.ask(b"reserve\r\n")
    assert operator.ask(b"pause-tube default 5\r\n") == b"PAUSED\r\n"
    client = waiting(cluster, b)
    number = put(cluster, a)
    assert client.said() == b""
    cluster.advance(5_100)
    assert client.said() == b"RESERVED %d 1\r\nx\r\n" % number


def test_a_job_that_is_larger_than_this_node_would_take_is_borrowed(cluster: Cluster) -> None:
    a, b = cluster.stations
    a.tubes_context.max_job_size = 4 << 20
    client = waiting(cluster, b)
    a.tube_client().ask(b"put 7 0 60 3000000\r\n%s\r\n" % (b"x" * 3_000_000))
    cluster.settle()
    assert client.said().startswith(b"RESERVED ")


def test_an_answer_that_is_too_large_is_no_answer_of_disques(cluster: Cluster) -> None:
    a, b = cluster.stations
    a.tubes_context.max_job_size = 1 << 20
    _, number = a.tube_client().ask(b"put 7 0 60 600000\r\n%s\r\n" % (b"x" * 600_000)).split()
    cluster.settle()
    assert ask(cluster, b.tube_client(), b"peek %s\r\n" % number) == b"OUT_OF_MEMORY\r\n"


def test_an_owner_that_answers_nonsense_has_not_answered(cluster: Cluster) -> None:
    client, number = borrowed(cluster)
    cluster.stations[0].jobs.lending._execute = lambda rights, request, then: then(b"-ERR what\r\n")
    assert ask(cluster, client, b"delete %d\r\n" % number) == b"NOT_FOUND\r\n"
    kept = cluster.stations[1].node.broker.tubes.tube(KEPT)
    assert kept.jobs.count == 1
