"""The routes about the cluster, on a view of it that answers as the test says."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from nsqd.http.cluster import ClusterRoute
from shared.http.bridge import Bridge
from shared.http.errors import HttpError
from tests.async_tests import on_asyncio

REQUEST = Request({"type": "http"})


def routes(outcome: bool | Exception) -> ClusterRoute:
    def forget(number: int, kept: Callable[[bool], None]) -> None:
        assert number == 3
        if isinstance(outcome, Exception):
            raise outcome
        kept(outcome)

    bridge = Bridge(lambda: bridge.deliver(bridge.serve()))
    node: Any = SimpleNamespace(bridge=bridge, cluster=SimpleNamespace(forget=forget))
    return ClusterRoute(node)


@on_asyncio
async def test_a_node_is_forgotten_when_that_is_durable() -> None:
    assert (await routes(True).forget(REQUEST, 3)).body == b'{"forgotten":3}'
    outcomes = (
        (False, "503: CANNOT_WRITE"),
        (KeyError(3), "404: NODE_NOT_FOUND"),
        (ValueError(), "409: NODE_IS_CONNECTED"),
    )
    for outcome, error in outcomes:
        with pytest.raises(HttpError) as refused:
            await routes(outcome).forget(REQUEST, 3)
        assert f"{refused.value.status}: {refused.value.text}" == error
