"""`penstock leave`: the progress that it prints, and the exit code, which is 0 only if another node confirms it."""

import httpx
import pytest

from apps.leave import ADVICE, describe, leave
from apps.node_client import Node
from shared.terminal.commands import CommandError
from tests.cases import each

LOG, OTHER = "0a" * 16, "0b" * 16


def test_how_far_the_node_is_and_which_logs_its_disk_may_be_needed_for() -> None:
    state = {"state": "left", "in_flight": 0, "logs": [], "lacking": [], "leaderless": []}
    assert describe(state) == "the node has left the cluster"
    waits = state | {"state": "handing over", "leaderless": [LOG, OTHER]}
    assert (
        describe(waits)
        == f"transferring 0 logs; no node leads these logs, of which its disk has a copy: {LOG}, {OTHER}"
    )
    gave_up = state | {"state": "gave up"}
    assert "connected to no other node" in describe(gave_up)
    assert "no other node" not in describe(gave_up | {"leaderless": [LOG]})
    lacking = describe(gave_up | {"logs": [{"log_id": OTHER, "asked": 2}], "lacking": [LOG]})
    assert lacking.startswith("the node ends, and has not left; 1 log not transferred in time")
    assert lacking.endswith(LOG)


def ran(states: list[str], standing: str, standing_after: str) -> int:
    """Run the command on node 0, which says these `states` and is then gone; node 1 has it as `standing`."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/cluster/leave":
            if not states:
                raise httpx.ConnectError("refused")
            state = {"state": states.pop(0), "in_flight": 0, "logs": [], "lacking": [], "leaderless": []}
            return httpx.Response(200, json=state)
        found = standing if states else standing_after
        nodes = [
            {"node": 0, "http_address": "a:1", "standing": found},
            {"node": 1, "http_address": "b:1", "standing": "member"},
        ]
        return httpx.Response(200, json={"node": 0 if request.url.host == "a" else 1, "nodes": nodes})

    with httpx.Client(base_url="http://a:1", transport=httpx.MockTransport(answer)) as client:
        return leave(Node(client, "a:1", ADVICE), "60s", sleep=lambda seconds: None)


@each("states, confirmed, result", [
    (["waiting", "telling", "left"], "left", 0),
    (["waiting", "telling"], "left", 0),  # it ended between two requests
    (["waiting", "left"], "member", "no other node confirms that node 0 has left"),
    (["waiting"], "member", "no other node confirms that node 0 has left"),
    (["waiting", "gave up"], "member", 1),
    (["waiting", "staying"], "member", "was started again"),
])  # fmt: skip
def test_it_is_done_if_another_node_confirms_it(states: list[str], confirmed: str, result: int | str) -> None:
    if isinstance(result, int):
        assert ran(states, "member", confirmed) == result
    else:
        with pytest.raises(CommandError, match=result):
            ran(states, "member", confirmed)
