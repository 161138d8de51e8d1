"""`penstock schedule`, as a user types it, on a node in the test's process."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.program import penstock as penstock  # the fixture
from tests.cases import each
from tests.local_node import LocalNode

Penstock = Callable[..., tuple[int, bytes, str]]
DONE = (0, b"", "")


@pytest.fixture
def node() -> LocalNode:
    return LocalNode()


def test_schedules_are_added_listed_paused_and_deleted(node: LocalNode, penstock: Penstock, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"\xff")
    every = ("--every", "10m", "--missed", "skip")
    assert penstock("schedule", "add", "t", "poll", "--file", str(body), *every, "--header", "a=b") == DONE
    cron = ("--cron", "30 6 * * MON", "--timezone", "Europe/Berlin")
    assert penstock("schedule", "add", "reports", "monday", "week", *cron) == DONE
    assert penstock("schedule", "add", "t", "once", "x", "--at", "2026-02-01T00:00:00+01:00") == DONE
    assert penstock("schedule", "pause", "t", "poll") == DONE
    assert penstock("schedule", "list")[1].decode().splitlines() == [
        "TOPIC    NAME    WHEN                        NEXT                  MISSED",
        "reports  monday  30 6 * * MON Europe/Berlin  2026-01-05T05:30:00Z  once",
        "t        once    2026-01-31T23:00:00Z        2026-01-31T23:00:00Z  once",
        "t        poll    every 10m0s                 paused                skip",
    ]
    shown = json.loads(penstock("schedule", "show", "t", "poll")[1])
    assert (shown["headers"], base64.b64decode(shown["body"])) == ({"a": "b"}, b"\xff")
    assert penstock("schedule", "delete", "t", "once") == penstock("schedule", "unpause", "t", "poll") == DONE
    listed = penstock("schedule", "list", "t", "--json")[1].splitlines()
    assert [(json.loads(one)["name"], json.loads(one)["paused"]) for one in listed] == [("poll", False)]


@each("arguments, code, why", [
    (("add", "t", "n", "x"), 2, "one of the arguments --cron --every --at is required"),
    (("add", "t", "n", "--every", "1s"), 2, "give either BODY or --file"),
    (("add", "t", "n", "--file", "/nonexistent", "--every", "1s"), 1, "No such file"),
    (("add", "t", "n", "x", "--every", "1500ms"), 1, "a whole number of seconds"),
    (("add", "t", "n", "x", "--cron", "0 0 30 2 *"), 1, "must match some day"),
    (("add", "t", "n", "x", "--cron", "0 0 * * *", "--timezone", "Mars"), 1, "knows no such time zone"),
    (("add", "t", "n", "x", "--at", "2020-01-01T00:00:00Z"), 1, "a time in the future"),
    (("add", "t", "n", "x", "--every", "1s", "--header", "a"), 2, "NAME=VALUE"),
    (("delete", "t", "n"), 1, "no such schedule"),
])  # fmt: skip
def test_errors_say_what_to_do(
    node: LocalNode, penstock: Penstock, arguments: tuple[str, ...], code: int, why: str
) -> None:
    found = penstock("schedule", *arguments)
    assert (found[0], why in found[2]) == (code, True), found[2]
    assert found[2].count(f"{arguments[0]}: ") == 1
