"""The group in packed attributes, read by a fast path, is the value of the header."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.attributes import Attributes, group_in
from penstock.protocol.headers import GROUP

TEXTS = st.text(alphabet="gä撥\x92\xa5", max_size=40) | st.just("撥group")


@given(
    before=st.integers(0, 17),
    after=st.integers(0, 3),
    value=TEXTS,
    group=st.none() | TEXTS,
    producer=st.sampled_from(["", "p"]),
)
def test_the_group_is_the_value_of_the_header(
    before: int, after: int, value: str, group: str | None, producer: str
) -> None:
    others = [(f"h{number}", value) for number in range(before + after)]
    headers = [*others[:before], *([(GROUP, group)] if group is not None else []), *others[before:]]
    if headers:
        packed = Attributes(tuple(headers), producer=producer, sequence=9).pack(3)
        assert group_in(packed) == (group or "").encode()
