"""The frame about the configurations of topics.

    CONFIGS  how messages of topics are kept, in msgpack: for each topic its name, the version (ms since the epoch, node
             number), and its own settings by name (shared/topic_config.py). An empty list: the end. nil: the sender does
             not know them, because it has only begun

See docs/contributing/design/cluster-protocol.md#configurations-of-topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgpack

from nsqd.cluster.wire.fields import is_int, unpack_message
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import MOST_NUMBER
from penstock.protocol.names import is_valid_name
from shared.topic_config import TopicConfig, dump, load

MOST_IN_FRAME = 1000
MOST_SETTINGS = 100  # of a topic, those of a later version included
MOST_CONFIGS = 10_000  # topics of which a node remembers the configuration
MOST_VALUE = (1 << 62) - 1
FIELDS = 4  # of a configuration


class VersionedConfig(NamedTuple):
    """The configuration of a topic. Of two versions the greater one (time, node) holds."""

    topic: str
    at: int  # ms since the epoch
    node: int  # number of the node at which it was set
    config: TopicConfig

    @property
    def version(self) -> tuple[int, int]:
        """Return the order of the versions of one topic."""
        return self.at, self.node


def to_fields(word: VersionedConfig) -> list[Any]:
    """Return a configuration as a list, for the frame and for cluster.json."""
    return [word.topic, word.at, word.node, dump(word.config)]


def from_fields(fields: Any) -> VersionedConfig:
    """Return the configuration in a list. Raises ValueError."""
    if not isinstance(fields, list) or len(fields) != FIELDS:
        raise ValueError(f"a configuration has {FIELDS} fields")
    topic, at, node, config = fields
    if type(topic) is not str or not is_valid_name(topic):
        raise ValueError("a configuration is of no topic")
    if not is_int(at, MOST_VALUE) or not is_int(node, MOST_NUMBER):
        raise ValueError("a configuration has no version")
    return VersionedConfig(topic, at, node, load(config))


def pack_configs(words: Iterable[VersionedConfig] | None) -> bytes:
    """Return the frame of up to MOST_IN_FRAME topics: empty at the end, None if the sender does not know them yet."""
    return encode(FrameKind.CONFIGS, msgpack.packb(None if words is None else [to_fields(word) for word in words]))


def unpack_configs(content: bytes) -> list[VersionedConfig] | None:
    """Return the configurations that the peer has sent, as for `pack_configs`. Raises PeerError."""
    found = unpack_message(content, MOST_IN_FRAME, most_keys=MOST_SETTINGS)
    if found is None:
        return None
    if not isinstance(found, list):
        raise PeerError("CONFIGS is not a list")
    try:
        return [from_fields(fields) for fields in found]
    except ValueError as error:
        raise PeerError(str(error)) from None
