"""What the commands of a cluster share that ask one nsqd to do something: its address, and what a refusal means."""

import argparse
from collections.abc import Mapping

import httpx

from apps.messages import ADDRESS


def add_address(parser: argparse.ArgumentParser, whose: str) -> None:
    """Add the option that says which nsqd is asked. `whose`: what the node is, such as "the node that is to leave"."""
    parser.add_argument(
        "--nsqd-http-address",
        default=ADDRESS,
        metavar="HOST:PORT",
        help=f"HTTP address of {whose} (default: {ADDRESS})",
    )


def why_refused(answer: httpx.Response, advice: Mapping[str, str], address: str, **names: object) -> str:
    """Return what an answer other than 200 means for the user.

    `advice`: by the error's word, a text with {address} and the `names`.
    """
    try:
        word = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{address} answered {answer.status_code}: it may not be an nsqd of Penstock"
    return advice.get(word, f"nsqd at {address} answered {word[:200]}").format(address=address, **names)
