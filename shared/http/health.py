"""The answers of every daemon to monitoring: plain text, without NSQ's header, like the original's /ping."""

import asyncio

from starlette.responses import Response

from shared.http.bridge import Bridge

LIVE_TIMEOUT = 2.0  # s that the trio thread may take to answer /livez; one turn of it takes microseconds


def plain(status: int, text: str) -> Response:
    """Return a text response without the header X-Nsq-Content-Type."""
    return Response(text, status_code=status, media_type="text/plain")


async def live(bridge: Bridge) -> Response:
    """Answer 200 if the trio thread runs a call within LIVE_TIMEOUT, otherwise 503."""
    try:
        await asyncio.wait_for(bridge.observe(lambda: None), LIVE_TIMEOUT)
    except TimeoutError:
        return plain(503, "NOK - the daemon does not answer")
    return plain(200, "OK")
