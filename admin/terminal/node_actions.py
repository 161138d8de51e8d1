"""`penstock drain`, `undrain`, `disconnect`, `request`: one node, one client, and any route of all nodes."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable
from typing import Any, TypeVar

from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import count
from admin.terminal.arguments import add_command, name_of
from admin.terminal.session import Session
from shared.counted import counted
from shared.json_fields import JsonObject, number
from shared.terminal.commands import CommandError, Commands, ExitCode, WrongArguments
from shared.terminal.confirm import add_confirmation, is_confirmed
from shared.terminal.output import Column, body_text, numbers, print_rows

ASK_EVERY = 1.0  # s between two requests for the progress of a drain
LEFT = ("depth", "in_flight", "deferred", "jobs", "schedules", "batches", "buried")
T = TypeVar("T")
COLUMNS = (Column("node"), Column("state"), *numbers(*LEFT))


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    what = "have a node take no further messages, before it is stopped; its consumers continue"
    drain = add_command(commands, "drain", _drain, what, "drain 10.0.0.1:4151 --wait")
    drain.add_argument("--wait", action="store_true", help="wait until nothing is left but buried messages and jobs")
    undrain = add_command(commands, "undrain", _undrain, "have a node take messages again", "undrain 10.0.0.1:4151")
    for command in (drain, undrain):
        command.add_argument("node", metavar="NODE", help="its HTTP address or host name: see penstock nodes")
    add_confirmation(drain)
    what = "end the connection of a consumer; its messages in flight are ready again at once"
    disconnect = add_command(commands, "disconnect", _disconnect, what, "disconnect orders mail 10.0.0.7:51234")
    for name in ("topic", "channel"):
        disconnect.add_argument(name, type=name_of, metavar=name.upper())
    disconnect.add_argument("client", metavar="ADDRESS", help="its address: see penstock clients")
    add_confirmation(disconnect)
    what = "send a request to the HTTP API of all nodes, and print the answers"
    request = add_command(
        commands, "request", _request, what, "request GET /storage\nrequest POST /topic/create topic=orders"
    )
    request.add_argument("method", choices=("GET", "POST"), metavar="GET|POST")
    request.add_argument("path", metavar="PATH", help="a route of docs/reference/http-routes.md")
    request.add_argument("arguments", nargs="*", default=[], metavar="NAME=VALUE", help="its arguments")
    request.add_argument("--node", metavar="NODE", help="only this node: its HTTP address or host name")


async def _drain(session: Session, arguments: argparse.Namespace) -> int:
    node = (await session.node(arguments.node)).address
    before = await _ask(session.direct.get_object(node, "/node/drain"))
    left = (
        f"{counted(number(before.get('depth')), 'message')} ready, {count(number(before.get('in_flight')))} in flight"
    )
    if before.get("draining") is not True and not is_confirmed(
        arguments, f"drain {node}: it takes no new messages; {left}"
    ):
        return ExitCode.DONE if arguments.dry_run else ExitCode.FAILED
    await _ask(session.direct.post(node, "/node/drain", {}))
    while True:
        state = await _ask(session.direct.get_object(node, "/node/drain"))
        if not arguments.wait or state.get("done") is True:
            break
        if state.get("draining") is not True:
            raise CommandError(f"{node} no longer drains: it was restarted, or someone has ended that; drain it again")
        if sys.stderr.isatty():
            print(f"\r{_left(state)} left   ", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(ASK_EVERY)
    return _print(node, state, arguments)


async def _undrain(session: Session, arguments: argparse.Namespace) -> int:
    node = (await session.node(arguments.node)).address
    await _ask(session.direct.post(node, "/node/undrain", {}))
    return _print(node, await _ask(session.direct.get_object(node, "/node/drain")), arguments)


def _left(state: JsonObject) -> str:
    return count(sum(number(state.get(name)) for name in LEFT if name != "buried"))


def _print(node: str, state: JsonObject, arguments: argparse.Namespace) -> int:
    words = (
        "drained" if state.get("done") is True else "draining" if state.get("draining") is True else "takes messages"
    )
    row = {"node": node, "state": words, **{name: number(state.get(name)) for name in LEFT}}
    print_rows([row], COLUMNS, as_json=arguments.json)
    return ExitCode.DONE


async def _ask(request: Awaitable[T]) -> T:
    """Return the answer of a node. Raises CommandError."""
    try:
        return await request
    except UpstreamError as failure:
        raise CommandError(str(failure)) from None


async def _disconnect(session: Session, arguments: argparse.Namespace) -> int:
    nodes = await session.penstock_nodes(arguments.topic)
    asked = {"topic": arguments.topic, "channel": arguments.channel, "client": arguments.client}
    stats = session.take(
        await session.cluster.stats(
            await session.producers(arguments.topic), arguments.topic, arguments.channel, clients=True
        )
    )
    having = {
        client["node"]: client["in_flight_count"]
        for channel in stats.channels().values()
        for client in channel["clients"] or ()
        if client["remote_address"] == arguments.client
    }
    having = {node: held for node, held in having.items() if node in nodes}
    if not having:
        raise CommandError(f"no consumer at {arguments.client[:100]}: see penstock clients {arguments.topic}")
    held = sum(having.values())
    if not is_confirmed(
        arguments, f"disconnect {arguments.client}: {counted(held, 'message')} in flight to be delivered again"
    ):
        return ExitCode.DONE if arguments.dry_run else ExitCode.FAILED
    answers = await session.post(having, "/client/disconnect", asked)
    rows = [
        {"node": node, "client": arguments.client, "requeued": number(json.loads(answer).get("requeued"))}
        for node, answer in answers.items()
    ]
    print_rows(rows, (Column("node"), Column("client"), *numbers("requeued")), as_json=arguments.json)
    return ExitCode.DONE


async def _request(session: Session, arguments: argparse.Namespace) -> int:
    if not arguments.path.startswith("/") or not all("=" in one for one in arguments.arguments):
        raise WrongArguments("expected a path that begins with /, and arguments NAME=VALUE")
    asked: dict[str, Any] = dict(one.split("=", 1) for one in arguments.arguments)
    nodes = (
        [(await session.node(arguments.node)).address]
        if arguments.node
        else [one.address for one in await session.producers()]
    )
    send = session.direct.get_bytes if arguments.method == "GET" else session.direct.post
    found = await session.direct.all_of(nodes, lambda node: send(node, arguments.path, asked))
    session.noted(found)
    for node, content in found.answers.items():
        print(
            _answer(node, content)
            if arguments.json
            else f"{node}: {body_text(content.decode('utf-8', 'replace').rstrip())}"
        )
    return ExitCode.DONE


def _answer(node: str, content: bytes) -> str:
    """Return a JSON object with an answer, as JSON if it is JSON."""
    text = content.decode("utf-8", "replace")
    try:
        return json.dumps({"node": node, "answer": json.loads(text)})
    except (ValueError, RecursionError):
        return json.dumps({"node": node, "answer": text})
