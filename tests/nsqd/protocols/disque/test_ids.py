"""Job ids: their owner, and the fields in them."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.protocols.disque.arguments import job_ids
from nsqd.protocols.disque.ids import ID_SIZE, JobIds

IDS = JobIds(b"a cluster")


@given(st.integers(0, 1023), st.integers(0, (1 << 48) - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_an_id_names_the_message(number: int, sequence: int, ttl: int, retry: int) -> None:
    message_id = number << 48 | sequence
    job_id = IDS.encode(message_id, ttl, retry)
    assert len(job_id) == ID_SIZE
    assert job_ids([b"ackjob", job_id]) == [job_id]
    assert job_id[2:10] == IDS.node_id(number)[:8]
    assert IDS.decode(job_id) == message_id
    assert int(job_id[-4:], 16) % 2 == bool(retry)
    assert JobIds(b"another").decode(job_id) is None


@given(st.binary(min_size=24, max_size=24), st.integers(2, 34), st.integers(0, 255))
def test_other_ids_are_nobodys(middle: bytes, place: int, byte: int) -> None:
    assert IDS.decode(b"D-%s-%s-05a1" % (IDS.node_id(3)[:8], middle)) is None
    job_id = bytearray(IDS.encode(3 << 48 | 77, 86_400, 300))
    changed = job_id[place] != byte and place not in range(23, 35)
    job_id[place] = byte
    if changed:
        assert IDS.decode(bytes(job_id)) is None


def test_the_last_bit_says_whether_a_job_is_redelivered() -> None:
    assert [int(IDS.encode(7, 60, retry)[-4:], 16) % 2 for retry in (0, 1)] == [0, 1]


def test_ids_of_unknown_node_numbers_and_a_node_id_is_40_hex_digits() -> None:
    assert IDS.decode(IDS.encode(1024 << 48 | 1, 1, 1)) is None
    assert len(IDS._of_nodes) <= 1024
    assert len(IDS.node_id(5)) == 40
    assert int(IDS.node_id(5), 16)
    assert IDS.node_id(5) != IDS.node_id(6)
