"""What IDENTIFY grants of TLS and compression, and what holds until it stands.

See docs/contributing/design/nsq-protocol.md#tls-and-compression.
"""

import json

from nsqd.protocols.nsq.settings import HANDSHAKE_TIMEOUT, Settings
from nsqd.protocols.transport import Upgrade
from shared.tls.info import TlsInfo
from tests.cases import each
from tests.nsqd.core.node import MS
from tests.nsqd.protocols.nsq.wire import ERROR, Wire, body

TLS = Settings(tls=True)
REQUIRED = Settings(tls=True, tls_required=True)
INFO = TlsInfo("TLS1.3", "TLS_AES_128_GCM_SHA256", "", True, "somebody")
BOTH_REFUSED = b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression"


def identify(**asked: object) -> bytes:
    return b"IDENTIFY\n" + body(json.dumps({"feature_negotiation": True, **asked}).encode())


# layers that are granted

GRANTED = [  # of the server, asked for by the client, agreed on
    (Settings(), {}, Upgrade()),
    (Settings(), {"tls_v1": True}, Upgrade()),
    (TLS, {"tls_v1": True}, Upgrade(tls=True)),
    (TLS, {"tls_v1": False}, Upgrade()),
    (TLS, {"snappy": True}, Upgrade(snappy=True)),
    (TLS, {"tls_v1": True, "snappy": True}, Upgrade(tls=True, snappy=True)),
    (TLS, {"tls_v1": True, "deflate": True}, Upgrade(tls=True, deflate=True)),
    (Settings(snappy=False), {"snappy": True}, Upgrade()),
    (Settings(deflate=False), {"deflate": True}, Upgrade()),
    (Settings(snappy=False), {"snappy": True, "deflate": True}, Upgrade(deflate=True)),
    (Settings(deflate=False), {"snappy": True, "deflate": True}, Upgrade(snappy=True)),
    (Settings(), {"deflate": True, "deflate_level": 1}, Upgrade(deflate=True, deflate_level=1)),
    (Settings(), {"deflate": True, "deflate_level": 9}, Upgrade(deflate=True, deflate_level=6)),
    (Settings(max_deflate_level=9), {"deflate": True, "deflate_level": 9}, Upgrade(deflate=True, deflate_level=9)),
    (Settings(max_deflate_level=3), {"deflate": True}, Upgrade(deflate=True, deflate_level=3)),
    (Settings(), {"deflate": True, "deflate_level": 0}, Upgrade(deflate=True)),
    (Settings(), {"deflate": True, "deflate_level": -5}, Upgrade(deflate=True)),
    (Settings(), {"deflate_level": 2}, Upgrade()),  # the level counts only with deflate
    (Settings(deflate=False), {"deflate": True, "deflate_level": 2}, Upgrade()),
    (TLS, {"feature_negotiation": False, "tls_v1": True, "snappy": True, "deflate": True}, Upgrade()),
]


@each("settings, asked, agreed", GRANTED)
def test_what_is_granted(settings: Settings, asked: dict[str, object], agreed: Upgrade) -> None:
    wire = Wire(settings=settings)
    (answer,) = wire.send(identify(**asked)).replies()
    if asked.get("feature_negotiation") is False:
        assert answer == b"OK"
    else:
        fields = json.loads(answer)
        assert Upgrade(*(fields[name] for name in ("tls_v1", "snappy", "deflate", "deflate_level"))) == agreed
        assert fields["max_deflate_level"] == settings.max_deflate_level
    assert wire.upgrades == ([agreed] if agreed.changes else [])


@each("tls", [False, True])
def test_both_compressions_are_refused_before_anything_changes(tls: bool) -> None:
    wire = Wire(settings=TLS)
    assert wire.send(identify(tls_v1=tls, snappy=True, deflate=True) + b"NOP\n").frames() == [(ERROR, BOTH_REFUSED)]
    assert wire.peer.closing
    assert wire.upgrades == []


# from IDENTIFY on


@each("asked", [{"tls_v1": True}, {"snappy": True}, {"deflate": True}])
def test_an_upgrade_may_come_with_the_second_identify_and_after_it_there_is_no_other(asked: dict[str, object]) -> None:
    wire = Wire(settings=TLS)
    assert wire.send(identify() + b"PUB t\n" + body(b"x")).replies()[1:] == [b"OK"], "pipelined commands count"
    wire.send(identify(**asked)).frames()
    wire.peer.upgraded(INFO if "tls_v1" in asked else None)
    assert wire.replies() == [b"OK"]
    assert wire.send(identify(**asked)).replies() == [b"E_INVALID cannot IDENTIFY in current state"]
    assert len(wire.upgrades) == 1


@each("asked", [{"tls_v1": True}, {"snappy": True}, {"deflate": True}])
@each("cut", [1, 7, 60])
def test_what_is_pipelined_behind_it_in_the_clear_is_dropped(asked: dict[str, object], cut: int) -> None:
    wire = Wire(settings=TLS)
    said = b"PUB before\n" + body(b"x") + identify(**asked)
    wire.send(said[: len(said) - cut])
    wire.send(said[len(said) - cut :] + b"PUB t\n" + body(b"x") + b"PUB t\n")
    assert len(wire.replies()) == 2
    wire.peer.upgraded(INFO if "tls_v1" in asked else None)
    assert wire.send(b"NOP\n").replies() == [b"OK"]
    assert list(wire.node.broker.topics) == ["before"]
    assert wire.send(b"PUB t\n" + body(b"y")).replies() == [b"OK"]


# time


def test_no_heartbeat_and_no_other_deadline_during_a_handshake() -> None:
    wire = Wire(settings=TLS)
    wire.send(identify(tls_v1=True, heartbeat_interval=1000)).frames()
    wire.advance(HANDSHAKE_TIMEOUT // MS - 1)
    assert wire.frames() == []
    assert not wire.peer.closing
    wire.advance(1)
    assert wire.peer.closing
    assert wire.frames() == []
    assert wire.node.broker.refused == {}


def test_heartbeats_go_on_after_the_handshake_and_compression_needs_none() -> None:
    wire = Wire(settings=TLS)
    wire.send(identify(tls_v1=True, heartbeat_interval=1000)).frames()
    wire.advance(500)
    wire.peer.upgraded(INFO)
    assert wire.replies() == [b"OK"]
    assert wire.advance(499).frames() == []
    assert wire.advance(1).replies() == [b"_heartbeat_"]
    wire.advance(1000)  # nothing was said since IDENTIFY, two intervals ago
    assert wire.peer.closing
    wire = Wire(settings=TLS)
    wire.send(identify(snappy=True, heartbeat_interval=1000)).frames()
    wire.peer.upgraded()
    wire.frames()
    assert wire.advance(1000).replies() == [b"_heartbeat_"]
    wire.peer.break_off()
    wire.node.now += 1_500 * MS
    wire.peer.tick(wire.node.now)
    assert wire.frames() == [], "a connection that closes has no timers"


@each("said", [b"", b"NO", b"IDENTIFY\n", b"IDENTIFY\n\0\0\0\2{", b"PUB t\n\0\0\0\5x", b"MPUB t\n"])
def test_the_first_command_must_be_complete_within_its_time(said: bytes) -> None:
    wire = Wire(settings=Settings(identify_timeout=2000 * MS))
    wire.send(said)
    wire.advance(1999)
    assert not wire.peer.closing
    wire.advance(1)
    assert wire.peer.closing
    assert wire.frames() == []  # no heartbeat before, and not a word now
    assert wire.node.broker.refused == {"identify_timeout": 1}


# TLS required

COMMANDS = [
    b"NOP", b"PUB t", b"MPUB t", b"DPUB t 5", b"SUB t c", b"RDY 1", b"FIN x", b"CLS", b"AUTH", b"BOGUS", b"",
    b"identify",
]  # fmt: skip


@each("command", COMMANDS)
def test_nothing_but_identify_before_tls(command: bytes) -> None:
    wire = Wire(settings=REQUIRED)
    word = command.split(b" ")[0]
    refused = b"E_INVALID cannot %s in current state (TLS required)" % word
    assert wire.send(command + b"\n").frames() == [(ERROR, refused)]
    assert wire.peer.closing
    assert wire.node.broker.topics == {}


def test_a_client_without_tls_gets_an_error_for_the_next_command() -> None:
    wire = Wire(settings=REQUIRED)
    assert len(wire.send(identify(snappy=True)).replies()) == 1
    wire.peer.upgraded()
    assert wire.send(b"NOP\n").replies() == [b"OK", b"E_INVALID cannot NOP in current state (TLS required)"]
    wire = Wire(settings=REQUIRED)
    wire.send(identify(tls_v1=True)).frames()
    wire.peer.upgraded(INFO)
    assert wire.send(b"NOP\nPUB t\n" + body(b"x")).replies() == [b"OK", b"OK"]


@each("mine, agreed", [
    (Settings(), {}),
    (Settings(topology_region="r", topology_zone="z"), {"topology_region": "r", "topology_zone": "z"}),
    (Settings(topology_zone="z"), {"topology_region": "", "topology_zone": "z"}),
])  # fmt: skip
def test_the_reply_contains_zone_and_region_of_the_server(mine: Settings, agreed: dict[str, str]) -> None:
    (answer,) = Wire(settings=mine).send(identify(topology_region="mine", topology_zone="mine")).replies()
    assert {key: value for key, value in json.loads(answer).items() if key.startswith("topology")} == agreed


@each("region, zone, distance", [
    ("r", "z", 0), ("other", "z", 0), ("r", "other", 1), ("r", "", 1), ("", "", 2), ("other", "other", 2), (None, None, 2),
])  # fmt: skip
def test_the_zone_wins_over_the_region(region: str | None, zone: str | None, distance: int) -> None:
    """None: the server has no zone either."""
    wire = Wire(settings=Settings() if region is None else Settings(topology_region="r", topology_zone="z"))
    wire.send(identify(topology_region=region or "", topology_zone=zone or "") + b"SUB t c\n")
    assert wire.peer.consumer.distance == distance
