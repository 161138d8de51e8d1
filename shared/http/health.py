"""What every daemon answers to the machines that watch it: plain text, without NSQ's header, as the original's /ping."""

import asyncio

from starlette.responses import Response

from shared.http.bridge import Bridge

LIVE_TIMEOUT = 2.0  # s the trio thread may take to answer /livez; a turn of it takes microseconds


def plain(status: int, text: str) -> Response:
    """Text without the header X-Nsq-Content-Type."""
    return Response(text, status_code=status, media_type="text/plain")


async def live(bridge: Bridge) -> Response:
    """200 while the trio thread turns."""
    try:
        await asyncio.wait_for(bridge.call(lambda: None), LIVE_TIMEOUT)
    except TimeoutError:
        return plain(503, "NOK - the daemon does not answer")
    return plain(200, "OK")
