"""Identities of nodes, and a configuration, for tests."""

from hypothesis import strategies as st

from nsqd.cluster.membership.topic_configs import VersionedConfig
from nsqd.cluster.wire.node_identity import NodeIdentity
from nsqd.core.message.id_ranges import MOST_RANGES, NO_END, IdRange
from shared.topic_config import Durability, TopicConfig

HEAD = 5  # bytes of a frame before its content
CONFIG = VersionedConfig("orders", 1_800_000_000_000, 7, TopicConfig(Durability.OS, 3600 * 10**9, None, 2, 5))


def node(
    number: int, incarnation: int = 1, log: int | None = None, address: str = "", ids: tuple[IdRange, ...] = ()
) -> NodeIdentity:
    """The identity of a node; its log is its own unless `log` says whose."""
    log_id = (number if log is None else log).to_bytes(16)
    address = address or f"node{number}:4152"
    return NodeIdentity(number, incarnation, log_id, incarnation.to_bytes(14), address, ids=ids)


NODES = st.builds(
    NodeIdentity, st.integers(0, 1023), st.integers(1, 2**63 - 1), st.binary(min_size=16, max_size=16),
    st.binary(min_size=14, max_size=14), st.from_regex(r"[a-z0-9.]{1,30}:[1-9][0-9]{0,4}", fullmatch=True),
    ids=st.lists(st.builds(IdRange, *[st.integers(0, NO_END)] * 3), max_size=MOST_RANGES).map(tuple),
)  # fmt: skip
