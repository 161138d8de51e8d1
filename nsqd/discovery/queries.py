"""Ask an nsqlookupd which channels a topic has on other nodes, and which nodes a cluster has.

Only this file of nsqd's discovery imports httpx.
"""

from __future__ import annotations

import math
import ssl
from typing import Any

import httpx
import trio

from nsqd.cluster.wire.node_identity import MOST_NUMBER, is_address
from penstock.protocol.names import is_valid_name
from shared.auth.own_token import headers
from shared.http.bounded import IDENTITY, AnswerError, parse_object, read_answer, valid_names
from shared.http.extensions import HEADER
from shared.tls.client import why_failed

MOST_ANSWER = 1024 * 1024  # bytes of an answer
MOST_ANSWER_MEMORY = 4 * MOST_ANSWER  # bytes of memory that an answer may take once it is parsed
MOST_CHANNELS = 10_000  # channels named in an answer
MOST_PEERS = 64  # nodes of the cluster in an answer
Tls = ssl.SSLContext | None
LONGEST_AGO = 1e6  # s: earlier contacts are forgotten by then

_HEADERS = {**IDENTITY, "Accept": "application/vnd.nsq", HEADER: "true"}
_NO_ANSWER = (httpx.HTTPError, httpx.InvalidURL, ValueError, trio.TooSlowError)  # the nsqlookupd is down, or lies


async def channels_of(url: str, topic: str, timeouts: tuple[float, float], tls: Tls = None) -> list[str]:
    """Return the valid channel names that an nsqlookupd answers. For `timeouts` and `tls` see `_ask`. Raises AnswerError."""
    channels = (await _ask(url, {"topic": topic}, timeouts, tls)).get("channels")
    return valid_names(channels, is_valid_name, MOST_CHANNELS)


async def cluster_peers_of(url: str, cluster: str, timeouts: tuple[float, float], tls: Tls = None) -> list[str]:
    """Return the cluster addresses (host:port) of a cluster's nodes. `timeouts`, `tls`: as in `_ask`. Raises AnswerError."""
    producers = (await _ask(url, {}, timeouts, tls)).get("producers")
    if not isinstance(producers, list):
        return []
    nodes = [node for node in producers if isinstance(node, dict) and node.get("cluster") == cluster]
    addresses = [address for node in nodes if isinstance(address := node.get("cluster_address"), str)]
    return [address for address in addresses[:MOST_PEERS] if is_address(address)]


async def contact_ages_of(url: str, cluster: str, timeouts: tuple[float, float], tls: Tls = None) -> dict[int, float]:
    """Return the s since the last contact with each connected node of a cluster, by node number. Raises AnswerError."""
    nodes = (await _ask(url, {}, timeouts, tls)).get("cluster_nodes")
    ages: dict[int, float] = {}
    for node in nodes if isinstance(nodes, list) else ():
        if not isinstance(node, dict) or node.get("cluster") != cluster or node.get("connected") is not True:
            continue
        number, ago = node.get("node_id"), node.get("last_contact")
        if type(number) is not int or not 0 <= number <= MOST_NUMBER or not isinstance(ago, int | float):
            continue
        if 0 <= ago < LONGEST_AGO:
            ages[number] = min(float(ago), ages.get(number, math.inf))
    return ages


async def _ask(url: str, params: dict[str, str], timeouts: tuple[float, float], tls: Tls) -> dict[str, Any]:
    """Return the object that an nsqlookupd answers.

    `timeouts` are those to connect, and for each wait for more of the answer, in s. `tls`: the authorities to trust, for a URL
    that begins with https. Raises AnswerError with a text of one line.
    """
    connect, read = timeouts
    longest = connect + read or math.inf  # s, however slowly the bytes arrive
    timeout = httpx.Timeout(read, connect=connect)
    try:
        # Without TLS the URL is never https: verify=False only saves the 20 ms of loading certificates.
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, verify=tls or False) as client:
            with trio.fail_after(longest):
                async with client.stream("GET", url, params=params, headers=_HEADERS | headers()) as answer:
                    answer.raise_for_status()
                    content = await read_answer(answer, MOST_ANSWER)
    except _NO_ANSWER as error:
        raise AnswerError(why_failed(error, "-tls-security-level")) from None
    return parse_object(content, MOST_ANSWER_MEMORY)
