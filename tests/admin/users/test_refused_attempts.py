"""Refused attempts are in the trail, and many of them displace nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx

from admin.users.audit import IN_MEMORY, Actor, Audit
from admin.users.refused_attempts import BURST, MOST_KINDS, PER_SECOND, SUMMARY, WINDOW, RefusedAttempts
from tests.admin.asking import NOWHERE, OURS, browser, make
from tests.async_tests import on_asyncio

EVE = Actor("eve", "10.0.0.9:5", "agent", "http://x", "viewer")


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.audit = Audit("", None, lambda: self.now)
        self.attempts = RefusedAttempts(
            self.audit, lambda: self.now, lambda seconds, do: self.due.append((self.now + seconds, do))
        )

    def wait(self, seconds: float) -> None:
        """Move the clock, and call what is due by then."""
        until = self.now + seconds
        while ready := [one for one in self.due if one[0] <= until]:
            self.due.remove(first := min(ready, key=lambda one: one[0]))
            self.now = first[0]
            first[1]()
        self.now = until

    def records(self) -> list[tuple[str, str, Any]]:
        """Return the records, the oldest first: the action, the outcome, and the detail."""
        found = asyncio.run(self.audit.search("", limit=10_000))
        return [(one["action"], one["outcome"], one["detail"]) for one in reversed(found)]


def test_the_first_is_recorded_and_its_repetitions_are_counted() -> None:
    world = World()
    for _ in range(500):
        world.attempts.note("delete", "orders", EVE, "no right")
    assert world.records() == [("delete", "refused: no right", {})]
    world.wait(WINDOW)
    assert world.records()[1:] == [("delete", "refused: no right", {"repeated": 499})]
    world.attempts.note("delete", "orders", EVE, "no right")
    world.wait(10 * WINDOW)
    assert len(world.records()) == 3  # without repetitions nothing follows


def test_what_differs_is_no_repetition() -> None:
    world = World()
    for action, target, actor, words in (
        ("delete", "a", EVE, "no right"), ("empty", "a", EVE, "no right"), ("delete", "b", EVE, "no right"),
        ("delete", "a", replace(EVE, user="ann"), "no right"), ("delete", "a", EVE, "the confirmation does not match"),
    ):  # fmt: skip
        world.attempts.note(action, target, actor, words)
    assert len(world.records()) == 5


def test_many_different_ones_are_summed_up_and_displace_nothing() -> None:
    world = World()
    world.audit.note("empty", "orders", EVE)
    for number in range(5000):
        world.attempts.note("delete", f"t{number}", EVE, "no right")
    assert len(world.records()) == 1 + BURST
    world.wait(SUMMARY)
    summary = [one for one in world.records() if one[0] == "any"]
    assert summary == [("any", "refused: more attempts than are recorded one by one", {"count": 5000 - BURST})]
    for number in range(3 * IN_MEMORY):
        world.wait(1 / PER_SECOND)
        world.attempts.note("delete", f"u{number}", EVE, "no right")
    assert "empty" in [action for action, _, _ in world.records()]


def test_the_kinds_that_are_counted_are_bounded() -> None:
    world = World()
    world.attempts._left = 10.0 * MOST_KINDS
    world.attempts._left_at = world.now
    for number in range(MOST_KINDS + 5):
        world.attempts._left = 10.0
        world.attempts.note("delete", f"t{number}", EVE, "no right")
    assert (len(world.attempts._counted), world.attempts._omitted) == (MOST_KINDS, 5)


@on_asyncio
async def test_refusals_by_rights_and_by_confirmation_are_in_the_trail() -> None:
    async with browser(make(nsqd_http_address=(NOWHERE,), admin_user=("ann",)), **OURS) as client:
        ann = {"X-Forwarded-User": "ann"}

        async def trail() -> list[list[str]]:
            rows = (await client.get("/audit?format=json", headers=ann)).json()
            return [[one["user"], one["action"], one["target"], one["outcome"]] for one in reversed(rows)]

        eve = {"X-Forwarded-User": "eve"}
        answers: list[httpx.Response] = [
            await client.post("/topics/t", data={"action": "empty", "confirm": "t"}, headers=eve),
            await client.get("/audit", headers=eve),
            await client.delete("/api/topics/t", headers=eve),
            await client.post("/topics/t", data={"action": "empty", "confirm": "x"}, headers=ann),
        ]
        assert [one.status_code for one in answers] == [403, 403, 403, 400]
        assert await trail() == [
            ["eve", "POST /topics/t", "t", "refused: no right"],
            ["eve", "GET /audit", "/audit", "refused: no right"],
            ["eve", "DELETE /api/topics/t", "t", "refused: no right"],
            ["ann", "empty", "t", "refused: the confirmation does not match"],
        ]
