"""nsq_to_nsq as a process between real daemons: kills, a destination that hangs, beside the original."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.client import Producer, PublishError
from tests.daemons import Daemon, Tool, eventually, nsqd, our_command, publish
from tests.forwarding import SOON, consume, drained, make_channel, state
from tests.originals import original

pytestmark = pytest.mark.process

CHANNEL = "nsq_to_nsq"
OURS = our_command("nsq_to_nsq")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    """A source and a destination. Each test takes topics of its own."""
    with nsqd(tmp_path_factory.mktemp("source")) as source, nsqd(tmp_path_factory.mktemp("target")) as destination:
        yield source, destination


def words(source: Daemon, topic: str, *flags: str) -> list[str]:
    return [f"-topic={topic}", f"-nsqd-tcp-address={source.tcp}", *SOON, *flags]


def unread(node: Daemon) -> int:
    """Return the bytes that a daemon has been sent over TCP, and has not read."""
    port = f":{int(node.tcp.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1].endswith(port) and row[3] == "01")


def test_a_signal_while_the_destination_hangs_gives_the_messages_back(nodes: tuple[Daemon, Daemon]) -> None:
    source, destination = nodes
    make_channel(source, "hangs", CHANNEL)
    with Tool(OURS, *words(source, "hangs", f"-destination-nsqd-tcp-address={destination.tcp}")) as running:
        publish(source, "hangs", "first")
        eventually(lambda: drained(source, "hangs", CHANNEL))
        destination.process.send_signal(signal.SIGSTOP)
        running.process.send_signal(signal.SIGSTOP)  # so that it reads all 200 at once
        try:
            publish(source, "hangs", *[str(i) for i in range(500)])
            eventually(lambda: state(source, "hangs", CHANNEL)[1] == 200)
            running.process.send_signal(signal.SIGCONT)
            eventually(lambda: unread(destination) > 0)  # a batch is in work
            assert running.stop(signal.SIGINT) == 0
        finally:
            destination.process.send_signal(signal.SIGCONT)
        assert any("no answer for 50 messages, requeued" in line for line in running.lines)
    assert state(source, "hangs", CHANNEL) == (500, 0, 0)


def test_every_message_arrives_over_kills_of_each_process(tmp_path: Path) -> None:
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd"))
        source = stack.enter_context(nsqd(tmp_path / "source", "-lookupd-tcp-address", lookupd.tcp))
        destination = stack.enter_context(nsqd(tmp_path / "destination"))
        make_channel(source, "t", CHANNEL)
        make_channel(destination, "t", "check")
        published: list[bytes] = []
        feeding = threading.Event()
        feeding.set()
        address = source.tcp
        feeder = threading.Thread(target=_feed, args=(address, published, feeding))
        feeder.start()
        stack.callback(feeder.join)
        stack.callback(feeding.clear)
        command = [*OURS, "-topic=t", f"-lookupd-http-address={lookupd.http}", *SOON]
        command += [f"-destination-nsqd-tcp-address={destination.tcp}", "-consumer-opt=msg_timeout,2s"]
        running = stack.enter_context(Tool(command))

        def went_on() -> None:  # messages published from now on come through
            goal = len(published) + 50
            eventually(lambda: len(published) > goal)
            marker = published[-1]
            found: set[bytes] = set()
            while marker not in found:
                found.update(consume([destination], "t", 1))
            arrived.update(found)

        arrived: set[bytes] = set()
        went_on()
        running.kill()
        running = stack.enter_context(Tool(command))
        went_on()
        source = stack.enter_context(_restarted(source, tmp_path / "source", "-lookupd-tcp-address", lookupd.tcp))
        went_on()
        destination = stack.enter_context(_restarted(destination, tmp_path / "destination"))
        went_on()
        stack.enter_context(_restarted(lookupd, None))
        went_on()
        feeding.clear()
        feeder.join()
        eventually(lambda: drained(source, "t", CHANNEL))
        missing = set(published) - arrived
        arrived.update(consume([destination], "t", len(missing)) if missing else [])
        assert set(published) <= arrived
        assert len(published) > 250


def _feed(address: str, published: list[bytes], feeding: threading.Event) -> None:
    """Publish numbers; those that are acknowledged are in `published`."""
    number = 0
    producer = Producer(address)
    while feeding.is_set():
        number += 1
        try:
            producer.publish("t", b"%d" % number)
            published.append(b"%d" % number)
        except PublishError:
            threading.Event().wait(0.01)
    producer.close()


def _restarted(daemon: Daemon, directory: Path | None, *flags: str) -> Daemon:
    """Kill a daemon, and return one with its data and those addresses that clients know, which is not started yet."""
    daemon.kill()
    tcp = ("-tcp-address", daemon.tcp)
    return nsqd(directory, *tcp, *flags) if directory else Daemon("nsqlookupd", *tcp, "-http-address", daemon.http)


BODIES = (
    b'{"f":"x","g":1,"h":[1,2.50,{"b":1,"a":"<&>"}]}',
    b'{"f":"y","g":2}',
    b'{"f":7,"g":3}',
    b'{"f":7.0,"g":1e3}',
    b'{"f":"7","g":1e-7,"h":0.00001}',
    b'{"f":true,"g":1.5e300,"h":1e21}',
    b'{"f":null,"g":"\\u00e9\\u2028\\ud83d\\ude00\\u0001\\u007f\\b\\f\\n\\"\\\\"}',
    b'{"g":"no f"}',
    b'{"g":{"z":1,"y":[]},"h":null,"f":{"x":1}}',
    b"null",
    b"[1]",
    b"{",
    b"plain",
    b'{"g":NaN}',
    b'{"g":123456789012,"h":-0.5,"f":"x"}',
    b'{"g":1e999}',
)


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("-whitelist-json-field=g", "-whitelist-json-field=h"),
        ("-require-json-field=f",),
        ("-require-json-field=f", "-require-json-value=x"),
        ("-require-json-field=f", "-require-json-value=7", "-whitelist-json-field=g"),
    ],
    ids=["all", "whitelist", "field", "value", "number"],
)
def test_the_original_republishes_the_same(nodes: tuple[Daemon, Daemon], flags: tuple[str, ...]) -> None:
    source, destination = nodes
    found, left = {}, {}
    bodies = BODIES if not any("-value" in flag for flag in flags) else [b for b in BODIES if b'"f"' in b]
    for name, command in (("ours", OURS), ("theirs", [original("nsq_to_nsq")])):
        make_channel(source, name, CHANNEL)
        make_channel(destination, name, "check")
        publish(source, name, *bodies)
        with Tool(command, *words(source, name, f"-destination-nsqd-tcp-address={destination.tcp}", *flags)):
            eventually(lambda name=name: drained(source, name, CHANNEL))  # type: ignore[misc]
        left[name] = state(destination, name, "check")[0]
        found[name] = sorted(consume([destination], name, left[name])) if left[name] else []
    assert found["ours"] == found["theirs"]
    assert found["ours"]
