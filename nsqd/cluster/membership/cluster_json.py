"""`cluster.json` in the data directory: the facts about its cluster that a node needs before it is connected.

It holds the number of the last run (the incarnation), the latest record of each node, the message ids that each may have
issued, the leader of each log, the votes of this node, which logs are closed, what was deleted
from logs that this node has lost, the configurations of topics, and which tails of copies were salvaged.

The incarnation does not depend on the log: a node whose log is lost continues above it, and a node that lost the
file, too, takes the time, which is above every incarnation unless the clock was set back by more than the time since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.deletions import pack_content, unpack_deleted
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.membership.leader_frames import Closed, make_closed
from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.membership.salvaged import SalvagedTail
from nsqd.cluster.membership.topic_configs import from_fields, to_fields
from nsqd.cluster.wire.fields import MOST_POSITION
from nsqd.cluster.wire.frames import PeerError
from nsqd.cluster.wire.node_identity import LOG_ID_SIZE, MOST_INCARNATION, MOST_NUMBER, Member, Standing, unpack
from nsqd.core.message.epoch import MOST_NUMBER as MOST_EPOCH
from nsqd.core.message.epoch import SIZE as EPOCH_SIZE
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch
from nsqd.core.message.ids import MOST_LEASE
from nsqd.storage.directory import DirectoryError
from shared.files import replace_file
from shared.sealed_json import seal, unseal

NAME = "cluster.json"


def read_facts(directory: Path) -> ClusterFacts:
    """Return the content of a data directory's file; no facts if there is none. Raises DirectoryError."""
    path = directory / NAME
    try:
        content = unseal(path.read_bytes())
        incarnation = _number(content["incarnation"], MOST_INCARNATION - 1)  # the next run has one that is greater
        lists = {name: tuple(map(unpack_one, content[name])) for name, (_, unpack_one) in _LISTS.items()}
        return ClusterFacts(incarnation=incarnation, knows_configs=content["knows_configs"] is True, **lists)
    except FileNotFoundError:
        return ClusterFacts()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, PeerError) as error:
        raise DirectoryError(
            f"failed to read {path} - {error}: remove it if it is corrupt: the other nodes send its content again"
        ) from None


def write_facts(directory: Path, facts: ClusterFacts) -> None:
    """Write the file durably. Raises OSError."""
    replace_file(directory / NAME, content_of(facts))


def content_of(facts: ClusterFacts) -> bytes:
    """Return the content of the file."""
    lists = {name: [pack_one(one) for one in getattr(facts, name)] for name, (pack_one, _) in _LISTS.items()}
    return seal({"incarnation": facts.incarnation, "knows_configs": facts.knows_configs, **lists})


def for_another(facts: ClusterFacts, number: int) -> ClusterFacts:
    """Return the part of this node's facts for the node `number`, which has lost its own file."""
    members = tuple(member for member in facts.members if member.node.number != number)
    return replace(facts, incarnation=0, members=members, votes=(), deletions=(), salvaged=())


def next_incarnation(facts: ClusterFacts, wall: int) -> int:
    """Return the incarnation of a run that begins at `wall` (ns since the epoch)."""
    return max(facts.incarnation + 1, wall // 1_000_000_000)


def _number(value: object, most: int) -> int:
    """Return a whole number from 0 to `most`. Raises ValueError for anything else: it could not be sent to another node."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.100} is not a number from 0 to {most}")
    return value


def _packed(member: Member) -> dict[str, Any]:
    node = asdict(member.node)
    return node | {"log_id": member.node.log_id.hex(), "epoch": member.node.epoch.hex(), "standing": member.standing}


def _member(fields: dict[str, Any]) -> Member:
    fields = dict(fields)
    standing = Standing(fields.pop("standing"))
    fields["log_id"], fields["epoch"] = bytes.fromhex(fields["log_id"]), bytes.fromhex(fields["epoch"])
    return Member(unpack(list(fields.values())), standing)


def describe_closed(record: Closed) -> dict[str, Any]:
    """Return the entry of a closed log in cluster.json and /cluster."""
    epochs = [(epoch.pack().hex(), start) for epoch, start in record.epochs]
    return {"log_id": record.log_id.hex(), "node": record.epoch.node, "epochs": epochs, "end": record.end}


def _closed(fields: dict[str, Any]) -> Closed:
    epochs = [(_epoch(epoch), _number(start, MOST_POSITION)) for epoch, start in fields["epochs"]]
    return make_closed(_log_id(fields["log_id"]), _number(fields["end"], MOST_POSITION), epochs)


def _describe_salvaged(tail: SalvagedTail) -> dict[str, Any]:
    return tail._asdict() | {"log_id": tail.log_id.hex(), "epochs": [(one.pack().hex(), at) for one, at in tail.epochs]}


def _salvaged(fields: dict[str, Any]) -> SalvagedTail:
    epochs = tuple((_epoch(epoch), _number(at, MOST_POSITION)) for epoch, at in fields["epochs"])
    start, end = _number(fields["start"], MOST_POSITION), _number(fields["end"], MOST_POSITION)
    return SalvagedTail(_log_id(fields["log_id"]), _number(fields["node"], MOST_NUMBER), start, end, epochs)


def _lease(fields: list[Any]) -> tuple[int, int]:
    number, lease = fields
    return _number(number, MOST_NUMBER), _number(lease, MOST_LEASE)


def _leader(fields: list[Any]) -> tuple[bytes, Epoch]:
    log_id, epoch = fields
    return _log_id(log_id), _epoch(epoch)


def _epoch(text: str) -> Epoch:
    packed = bytes.fromhex(text)
    if len(packed) != EPOCH_SIZE or unpack_epoch(packed).node > MOST_NUMBER:
        raise ValueError("an epoch is not one")
    return unpack_epoch(packed)


def _vote(fields: list[Any]) -> tuple[bytes, Vote]:
    log_id, number, node = fields
    return _log_id(log_id), Vote(_number(number, MOST_EPOCH), _number(node, MOST_NUMBER))


def _log_id(text: str) -> bytes:
    log_id = bytes.fromhex(text)
    if len(log_id) != LOG_ID_SIZE:
        raise ValueError("a log id is not one")
    return log_id


# the lists of facts in the file, by their names here and in ClusterFacts: how one is written, and read
_LISTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "members": (_packed, _member),
    "leases": (list, _lease),
    "leaders": (lambda one: (one[0].hex(), one[1].pack().hex()), _leader),
    "votes": (lambda one: (one[0].hex(), *one[1]), _vote),
    "closed": (describe_closed, _closed),
    "configs": (to_fields, from_fields),
    "deletions": (lambda one: pack_content(*one).hex(), lambda text: unpack_deleted(bytes.fromhex(text))),
    "salvaged": (_describe_salvaged, _salvaged),
}


def facts_of(cluster: Cluster) -> ClusterFacts:
    """Return the facts that the file is to hold."""
    leaders = cluster.leaders
    return ClusterFacts(
        cluster.highest,
        tuple(
            sorted(cluster.members_to_keep(), key=lambda one: (one.node.number, one.node.incarnation, one.node.log_id))
        ),
        tuple(sorted(cluster.leases.items())),
        tuple(sorted(leaders.epochs.items())),
        tuple(sorted(leaders.votes.items())),
        tuple(leaders.closed.values()),
        tuple(sorted(cluster.configs.known.values(), key=lambda record: record.topic)),
        cluster.configs.is_complete,
        tuple(cluster.deletions.known.items()),
        tuple(cluster.salvaged.known),
    )
