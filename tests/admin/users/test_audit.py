"""Records of actions can be found: in memory, in the file, by words; a failure to write them hinders no action."""

import asyncio
import json
from pathlib import Path

from admin.users.audit import DONE, IN_MEMORY, MOST_TEXT, Actor, Audit
from admin.users.outbox import MOST_WAITING
from tests.async_tests import on_asyncio
from tests.cases import each

ANN = Actor("ann", "10.0.0.1:5", "agent", "http://x", "admin")


def found(audit: Audit, words: str = "", before: str = "", limit: int = 10_000) -> list[str]:
    return [one["target"] for one in asyncio.run(audit.search(words, before, limit))]


@each("keeps", [True, False])
def test_a_search_returns_the_newest_first(tmp_path: Path, keeps: bool) -> None:
    now = [1_700_000_000.0]
    audit = Audit(str(tmp_path / "audit") if keeps else "", None, lambda: now[0])
    for place in range(5):
        now[0] += 1
        audit.note("pause" if place % 2 else "empty", f"t{place}", ANN, DONE if place < 3 else "failed", count=place)
    assert found(audit) == ["t4", "t3", "t2", "t1", "t0"]
    assert found(audit, "PAUSE failed") == ["t3"]
    assert found(audit, limit=2) == ["t4", "t3"]
    times = [one["time"] for one in asyncio.run(audit.search(""))]
    assert found(audit, before=times[1]) == ["t2", "t1", "t0"]
    assert times[0] == "2023-11-14T22:13:25.000+00:00"


def test_the_file_is_lines_of_json_and_outlives_its_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    audit = Audit(str(path), None, lambda: 0.0)
    audit.note("empty", "t", ANN, count=7)
    assert json.loads(path.read_text()) == {
        "time": "1970-01-01T00:00:00.000+00:00", "user": "ann", "role": "admin", "address": "10.0.0.1:5", "agent": "agent",
        "action": "empty", "target": "t", "detail": {"count": 7}, "outcome": "done",
    }  # fmt: skip
    path.rename(tmp_path / "audit.1")
    audit.note("delete", "u", ANN)
    assert found(audit) == ["u"]
    assert path.stat().st_mode & 0o007 == 0
    with path.open("ab") as file:  # other lines are ignored
        file.write(b'\xff\n[1]\n{"time": 7}\n{"half": \n' + b"[" * 100_000 + b"\n")
    audit.note("empty", "v", ANN)
    assert found(audit) == ["v", "u"]
    audit = Audit(str(tmp_path / "none" / "audit"), None)  # a file that cannot be written hinders nothing
    audit.note("empty", "t", ANN)
    assert found(audit) == []


def test_memory_and_texts_are_bounded() -> None:
    audit = Audit("", None)
    for place in range(IN_MEMORY + 5):
        audit.note("empty", f"t{place}" + "x" * 10_000, ANN)
    assert len(found(audit)) == IN_MEMORY
    assert len(found(audit)[0]) == MOST_TEXT


@on_asyncio
async def test_records_are_published_in_order_and_failures_end_nothing() -> None:
    published: list[bytes] = []

    async def publish(line: bytes) -> None:
        published.append(line)
        if len(published) == 1:
            raise OSError

    audit = Audit("", publish)
    for place in range(MOST_WAITING + 5):
        audit.note("empty", f"t{place}", ANN)
    while len(published) < MOST_WAITING:
        await asyncio.sleep(0)
    assert [json.loads(line)["target"] for line in published[:3]] == ["t0", "t1", "t2"]
