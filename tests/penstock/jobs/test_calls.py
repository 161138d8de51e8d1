"""Commands of jobs spelled out, and arguments that must be refused."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.protocols.beanstalk.commands import MAX_LINE, verb_of
from penstock.jobs import Retries, calls
from penstock.jobs.calls import MAX_U32, Call
from penstock.jobs.commands import Commands
from penstock.protocol.beanstalk import MAX_ID
from tests.cases import each

WIDE = memoryview(b"abcd").cast("I")  # one item of four bytes


@each("call, command", [
    (calls.put("t", b"ab", 1, 1.2, 3), b"put 1 2 3 2\r\nab\r\n"),
    *((calls.put("t", body, 1, 0, 60), b"put 1 0 60 4\r\nabcd\r\n") for body in (bytearray(WIDE), WIDE)),
    (calls.put_unique("t", "k", b"ab", 1, 2, 3), b"put-unique k 1 2 3 2\r\nab\r\n"),
    (calls.put_unique("t", "k", b"ab", 1, 2, 3, True), b"put-unless-pending k 1 2 3 2\r\nab\r\n"),
    (calls.put_batch("t", "b", b"ab", 1, 2, 3), b"put-batch b 1 2 3 2\r\nab\r\n"),
    (calls.put_grouped("t", "g", b"ab", 1, 2, 3), b"put-grouped g 1 2 3 2\r\nab\r\n"),
    (calls.close_batch("b"), b"close-batch b\r\n"), (calls.stats_batch("b"), b"stats-batch b\r\n"),
    (calls.use("t"), b"use t\r\n"), (calls.watch("t"), b"watch t\r\n"), (calls.ignore("t"), b"ignore t\r\n"),
    (calls.reserve(5), b"reserve-with-timeout 5\r\n"), (calls.reserve_job(7), b"reserve-job 7\r\n"),
    (calls.reserve_batch(9, 1), b"reserve-batch 9 1\r\n"),
    (calls.delete(7), b"delete 7\r\n"), (calls.delete_batch([1, 2]), b"delete-batch 1 2\r\n"),
    (calls.release(7, 1, 2, 0), b"release 7 1 2\r\n"), (calls.bury(7, 1, 0), b"bury 7 1\r\n"),
    (calls.touch(7, 0), b"touch 7\r\n"), (calls.peek(7), b"peek 7\r\n"), (calls.peek_first("t", "buried"), b"peek-buried\r\n"),
    (calls.kick("t", 3), b"kick 3\r\n"), (calls.kick_job(7), b"kick-job 7\r\n"), (calls.STATS, b"stats\r\n"),
    (calls.stats_job(7), b"stats-job 7\r\n"), (calls.stats_tube("t"), b"stats-tube t\r\n"),
    (calls.LIST_TUBES, b"list-tubes\r\n"), (calls.list_jobs("t", "ready", 5, 7), b"list-jobs t ready 5 7\r\n"),
    (calls.pause_tube("t", 5), b"pause-tube t 5\r\n"), (calls.clear_tube("t"), b"clear-tube t\r\n"),
    (calls.move_job(7, "t"), b"move-job 7 t\r\n"),
])  # fmt: skip
def test_a_command_on_the_wire_that_the_server_understands(call: Call[Any], command: bytes) -> None:
    assert call.command == command
    line = command.partition(b"\r\n")[0]
    verb, read = verb_of(line)
    read(line, len(verb))  # raises BadFormat


WITH_A_NAME: list[Callable[[str], Call[Any]]] = [
    calls.use, calls.watch, calls.ignore, calls.stats_tube, calls.clear_tube,
    lambda name: calls.pause_tube(name, 1), lambda name: calls.move_job(1, name),
    lambda name: calls.list_jobs(name, "ready", 1, 0), lambda name: calls.put_unique("t", name, b"", 1, 0, 1),
    calls.close_batch, calls.stats_batch, lambda name: calls.put_batch("t", name, b"", 1, 0, 1),
    lambda name: calls.put_grouped("t", name, b"", 1, 0, 1),
]  # fmt: skip


@given(st.text(max_size=300))
def test_a_name_never_becomes_a_second_command(text: str) -> None:
    for make in WITH_A_NAME:
        with suppress(ValueError):
            command = make(text).command
            line = command.removesuffix(b"\r\n\r\n" if b"put-" in command else b"\r\n")
            assert not {*b"\r\n"} & {*line}
            assert len(line) + 2 <= MAX_LINE


@each("number", [-1, MAX_U32 + 1])
def test_numbers_are_bounded(number: int) -> None:
    for make, *arguments in (
        (calls.put, "t", b"", number, 0, 1), (calls.put, "t", b"", 0, number, 1), (calls.put, "t", b"", 0, 0, number),
        (calls.release, 1, number, 0, 0), (calls.bury, 1, number, 0), (calls.kick, "t", number),
        (calls.pause_tube, "t", number), (calls.reserve, number),
        (calls.delete, number if number < 0 else MAX_ID + 1), (calls.reserve_batch, 0, 1), (calls.reserve_batch, 101, 1),
        (calls.delete_batch, []), (calls.delete_batch, [MAX_ID] * 20), (calls.list_jobs, "t", "ready", 1001, 0),
        (calls.list_jobs, "t", "done", 1, 0), (calls.peek_first, "t", "reserved"),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            make(*arguments)  # type: ignore[operator]


@each("seconds", [math.inf, -math.inf, math.nan])
def test_times_that_are_not_finite_are_refused(seconds: float) -> None:
    for make, *arguments in (
        (calls.put, "t", b"x", 1, seconds, 60), (calls.put, "t", b"x", 1, 0, seconds),
        (calls.put_unique, "t", "k", b"x", 1, seconds, 60), (calls.release, 1, 1, seconds, 1), (calls.pause_tube, "t", seconds),
        (calls.reserve_batch, 1, seconds),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="finite number of seconds"):
            make(*arguments)  # type: ignore[operator]
    with pytest.raises(ValueError, match="max_delay_s"):
        Retries(max_delay_s=math.inf)


@each("text, make, arguments", [
    ("a body must be bytes, not str", calls.put, ("t", "a", 1, 0, 60)),
    ("a body must be bytes, not int", calls.put, ("t", 1, 1, 0, 60)),
    ("a priority must be an int, not str", calls.put, ("t", b"x", "a", 0, 60)),
    ("a time must be a number of seconds, not str", calls.put, ("t", b"x", 1, "a", 60)),
    ("a key must be a str, not int", calls.put_unique, ("t", 1, b"x", 1, 0, 60)),
    ("a job's id must be an int, not str", calls.delete, ("a",)),
    ("a job's id must be an int, not str", calls.delete_batch, ([1, "a"],)),
    ("a job's id must be an int, not str", calls.touch, ("a", 1)),
    ("a count must be an int, not str", calls.kick, ("t", "a")),
    ("a tube's name must be a str, not int", calls.watch, (1,)),
])  # fmt: skip
def test_arguments_of_the_wrong_type_are_named(text: str, make: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=text):
        make(*arguments)


class Idle(Commands[Any]):
    """A client whose connection would be closed by an error in its work."""

    def perform(self, work: object) -> None:
        raise AssertionError("nothing is performed")


@each(
    "method, arguments",
    [("put", ("a",)), ("reserve_job", ("a",)), ("reserve_batch", ("a",)), ("kick", ("a",)), ("use", (1,))],
)
def test_a_wrong_type_is_an_error_before_the_connection_is_used(method: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(Idle("h:1"), method)(*arguments)


class Made(Commands[Any]):
    """A client that returns the calls that both clients perform."""

    def perform(self, work: Any) -> Any:
        return work


def test_a_put_names_a_batch_or_a_group() -> None:
    client = Made("h:1", use="t")
    for word in ("batch", "group"):
        call = client.put(b"x", **{word: "a"})
        assert call == getattr(calls, {"batch": "put_batch", "group": "put_grouped"}[word])(
            "t", "a", b"x", 65536, 0, 60
        )
    with pytest.raises(ValueError, match="a batch or a group"):
        client.put(b"x", batch="a", group="b")
