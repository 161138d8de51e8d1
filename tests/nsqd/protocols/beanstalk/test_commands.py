"""The lines that are read quickly mean what the exact reading says."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.protocols.beanstalk.commands import read_usual, verb_of

VERBS = [b"reserve", b"delete ", b"touch ", b"reserve-with-timeout ", b"delete", b"reserve-job ", b"Delete "]
ENDS = [
    b"", b" ", b"\0", b"\n", b"0", b"7", b"007", b"999999999", b"1000000000", b"-1", b"+1", b" 7", b"7 ",
    b"7 HTTP/1.1",
]  # fmt: skip


@given(st.sampled_from(VERBS), st.one_of(st.sampled_from(ENDS), st.binary(max_size=4)))
def test_a_usual_line_is_read_as_the_exact_reading_does(verb: bytes, end: bytes) -> None:
    line = verb + end
    usual = read_usual(line)
    if usual is not None:
        exact, reader = verb_of(line)
        assert usual == (exact, reader(line, len(exact)))


def test_workers_send_usual_lines() -> None:
    assert read_usual(b"reserve") == (b"reserve", ())
    assert read_usual(b"reserve-with-timeout 5") == (b"reserve-with-timeout ", (5,))
    assert read_usual(b"delete 12") == (b"delete ", (12,))
    assert read_usual(b"touch 12") == (b"touch ", (12,))
