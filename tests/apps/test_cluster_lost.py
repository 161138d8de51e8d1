"""`penstock cluster promote` is done when the log has a new leader."""

from typing import Any

import pytest

from apps.cluster_lost import read_leaders
from shared.terminal.commands import CommandError
from tests.cases import each

LOST = {"log_id": "a", "leader": 2, "leader_lost": True, "reason": "", "state": ""}


def answer(*cases: dict[str, Any], led: list[dict[str, Any]] | None = None, closed: str = "") -> dict[str, Any]:
    closings = [{"log_id": closed, "node": 1}] if closed else []
    return {"node": 0, "led": led or [], "elections": {"logs": list(cases)}, "closed": closings}


@each("cluster, leaders, reasons", [
    (answer(led=[{"log_id": "a", "state": "reading"}]), {"a": 0}, {}),
    (answer(LOST | {"leader": 1, "leader_lost": False}), {"a": 1}, {}),  # another node has promoted it
    (answer(closed="a"), {"a": 1}, {}),  # it had no unfinished messages
    (answer(LOST | {"reason": "no majority"}), {}, {"a": "no majority"}),
    (answer(LOST | {"state": "candidate"}), {}, {"a": "candidate"}),
    (answer(LOST, led=[{"log_id": "a", "state": "lost"}]), {}, {"a": "it waits"}),
    (answer(), {}, {"a": "the node has no copy of it"}),
])  # fmt: skip
def test_a_log_has_a_new_leader_or_a_reason_why_not(
    cluster: dict[str, Any], leaders: dict[str, int], reasons: dict[str, str]
) -> None:
    assert read_leaders(cluster, ["a"]) == (leaders, reasons)


def test_another_program_is_an_error() -> None:
    with pytest.raises(CommandError):
        read_leaders({"led": 7}, ["a"])
