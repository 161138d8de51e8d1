"""The frame about the configurations of topics: refused contents. test_fuzz.py tests packing and reading."""

from typing import Any

import msgpack
import pytest

from nsqd.cluster.membership.config_frames import (
    MOST_IN_FRAME,
    MOST_VALUE,
    VersionedConfig,
    pack_configs,
    to_fields,
    unpack_configs,
)
from nsqd.cluster.wire.frames import PeerError
from nsqd.core.retention.policy import Durability, TopicConfig
from tests.cases import each

HEAD = 5  # bytes of a frame before its content
CONFIG = VersionedConfig("orders", 1_800_000_000_000, 7, TopicConfig(Durability.OS, 3600 * 10**9, None, 2, 5))


@each(
    "place, value",
    [
        (0, "not a topic"),
        (0, 7),
        (0, "t" * 65),
        (1, -1),
        (1, MOST_VALUE + 1),
        (1, True),
        (2, 1024),
        (3, "never"),
        (4, -1),
    ]
    + [(4, "1"), (5, MOST_VALUE + 1), (6, 0), (6, []), (7, -1), (7, 65536), (7, True)],
)
def test_a_field_that_no_configuration_has_is_refused(place: int, value: Any) -> None:
    fields = to_fields(CONFIG)
    fields[place] = value
    with pytest.raises(PeerError):
        unpack_configs(msgpack.packb([fields]))


@each(
    "content",
    [{}, 7, [7], [[]], [to_fields(CONFIG)[:-1]], [[*to_fields(CONFIG), 1]], [to_fields(CONFIG)] * (MOST_IN_FRAME + 1)],
)
def test_what_is_no_list_of_configurations_is_refused(content: Any) -> None:
    with pytest.raises(PeerError):
        unpack_configs(msgpack.packb(content))


def test_as_many_as_are_told_at_once_fit_into_a_frame() -> None:
    words = [CONFIG._replace(topic=f"{number:064}", at=MOST_VALUE) for number in range(MOST_IN_FRAME)]
    frame = pack_configs(words)
    assert len(frame) < 1 << 20
    assert unpack_configs(frame[HEAD:]) == words
