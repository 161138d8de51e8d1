"""`penstock create`, `delete`, `empty`, `pause`, `unpause`, `config`: topics and channels on all nodes, as nsqadmin's buttons.

What drops messages asks first, with their number.
"""

from __future__ import annotations

import argparse
import getpass
import time
from typing import Any

from admin.messages.actions import Actions, Notifier
from admin.nodes.cluster import AllFailed, Outcome
from admin.terminal.arguments import add_command, add_names, duration, names_of
from admin.terminal.session import Session
from admin.users.audit import Actor, Audit
from admin.users.tombstones import Tombstones
from shared.counted import counted
from shared.terminal.commands import CommandError, Commands, ExitCode, WrongArguments
from shared.terminal.confirm import add_confirmation, is_confirmed
from shared.terminal.output import Column, print_rows
from shared.topic_config import AS_NODE, OF_CHANNELS, SETTINGS
from shared.values import SECOND

DROPS = {"delete": "delete", "empty": "drop all messages of"}
_WHAT = {
    "create": "create a topic, or a channel of it",
    "delete": "delete a topic with its channels, or a channel, on all nodes",
    "empty": "drop the messages of a topic that no channel has, or all of a channel, on all nodes",
    "pause": "hold messages back, on all nodes: of a topic from its channels, of a channel from its consumers",
    "unpause": "end the pause of a topic or a channel, on all nodes",
}


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    for name, what in _WHAT.items():
        command = add_command(commands, name, _change, what, f"{name} orders\n{name} orders/mail")
        add_names(command)
        add_confirmation(command)
        command.set_defaults(action=name)
        if name == "pause":
            command.add_argument(
                "--for", dest="length", type=duration, metavar="DURATION", help="end the pause after this time"
            )
    config = add_command(
        commands, "config", _config, "show or change the settings of a topic or a channel, on all nodes",
        "config orders\nconfig orders retention=24h replicate=2\nconfig orders retention=default\n"
        "config orders/billing retry='exponential(1s, 10m)' rate=100",
    )  # fmt: skip
    add_names(config)
    names = ", ".join(SETTINGS)
    config.add_argument(
        "changes",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help=f"{names}; of a channel: {', '.join(OF_CHANNELS)}; the value {AS_NODE}: as the topic or the node's flags say",
    )
    add_confirmation(config)


async def _change(session: Session, arguments: argparse.Namespace) -> int:
    topic, channel = names_of(arguments.name)
    action, kind = arguments.action, "channel" if channel else "topic"
    nodes = [] if action == "create" else await session.producers(topic)
    subject = f"{kind} {arguments.name}"
    if action in DROPS:
        counts = await _counts(session, topic, channel)
        if not is_confirmed(arguments, f"{DROPS[action]} {subject} on {counted(len(nodes), 'node')}: {counts}"):
            return ExitCode.DONE if arguments.dry_run else ExitCode.FAILED
    elif arguments.dry_run:
        is_confirmed(arguments, f"{action} {subject}" + (f" on {counted(len(nodes), 'node')}" if nodes else ""))
        return ExitCode.DONE
    outcome = session.take(await _sent(session, action, topic, channel, arguments))
    if not outcome.done:
        raise CommandError(f"{subject}: no node did it")
    row = {"action": action, "topic": topic, "channel": channel, "daemons": outcome.done}
    if arguments.json:
        print_rows([row], (), as_json=True)
    else:
        print(f"{subject}: {action} done by {counted(outcome.done, 'daemon')}")
    return ExitCode.DONE


async def _sent(session: Session, action: str, topic: str, channel: str, arguments: argparse.Namespace) -> Outcome:
    """Send a command to the nsqlookupds and the nodes that it concerns. Raises NoAnswer."""
    actions = Actions(session.cluster, Notifier(""), Audit("", None), Tombstones(time.time))
    actor = Actor(_user(), "", "penstock", "")
    try:
        match action:
            case "create":
                return await _created(session, topic, channel)
            case "delete":
                return await actions.delete(topic, channel, actor)
        more: dict[str, Any] = {"by": actor.user} if action == "pause" else {}
        if action == "pause" and arguments.length:
            more["until"] = str((session.clock() + arguments.length) // SECOND + 1)
        return await actions.change(action, topic, channel, actor, **more)
    except AllFailed as failed:
        raise session.no_answer(failed) from None


async def _created(session: Session, topic: str, channel: str) -> Outcome:
    """Create a topic or a channel at each nsqlookupd and on all nodes, so that it can be configured at once."""
    addresses = [*session.cluster.lookupds, *(one.address for one in await session.producers())]
    outcome = await session.cluster.send(addresses, "/topic/create", {"topic": topic})
    if channel:
        outcome = await session.cluster.send(addresses, "/channel/create", {"topic": topic, "channel": channel})
    return outcome


async def _counts(session: Session, topic: str, channel: str) -> str:
    """Return the messages that an action would drop, as text. Raises CommandError if the channel does not exist."""
    stats = session.take(await session.cluster.stats(await session.producers(topic), topic))
    channels = {name: one for (_, name), one in stats.channels().items()}
    if channel and channel not in channels:
        raise CommandError(f"channel {topic}/{channel} was not found: see penstock channels {topic}")
    chosen = [channels[channel]] if channel else list(channels.values())
    own = 0 if channel else sum(one["depth"] for one in stats.topics)
    held = own + sum(
        one["depth"] + one["in_flight_count"] + one["deferred_count"] + one.get("buried_count", 0) for one in chosen
    )
    consumers = sum(one["client_count"] for one in chosen)
    parts = [] if channel else [counted(len(channels), "channel")]
    return ", ".join([*parts, counted(held, "message"), f"{counted(consumers, 'consumer')} connected"])


def _user() -> str:
    """Return the name of the user of this machine, which nodes show as who paused a topic."""
    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # the user has no name
        return ""


# Settings


async def _config(session: Session, arguments: argparse.Namespace) -> int:
    topic, channel = names_of(arguments.name)
    nodes = await session.penstock_nodes(topic)
    names = OF_CHANNELS if channel else tuple(SETTINGS)
    changes = _changes(arguments.changes, names)
    about = {"topic": topic, "channel": channel} if channel else {"topic": topic}
    if changes:
        words = ", ".join(f"{name}={value}" for name, value in changes.items())
        if arguments.dry_run:
            is_confirmed(
                arguments,
                f"set {words} of {'channel' if channel else 'topic'} {arguments.name} on {counted(len(nodes), 'node')}",
            )
            return ExitCode.DONE
        if not await session.post(nodes, "/topic/config", about | changes):
            raise CommandError("no node did it")
    found = await session.gather(nodes, "/topic/config", about)
    rows = _settings(found.answers, tuple(changes) or names)
    print_rows(rows, (Column("setting"), Column("value"), Column("node")), as_json=arguments.json)
    return ExitCode.DONE


def _changes(given: list[str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the settings in NAME=VALUE, with a NAME of `names`. Raises WrongArguments."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name not in names or not equals:
            raise WrongArguments(f"expected NAME=VALUE, with NAME one of {', '.join(names)}: not {text[:100]!r}")
        try:
            found[name] = value if value == AS_NODE else str(SETTINGS[name].show(SETTINGS[name].read(value)))
        except ValueError:
            raise WrongArguments(f"{name} must be {SETTINGS[name].expected}, or {AS_NODE}") from None
    return found


def _settings(answers: dict[str, Any], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return a row for each setting, or for each of its values if nodes have several."""
    rows = []
    for name in names:
        values: dict[str, list[str]] = {}
        for node, answer in answers.items():
            values.setdefault(str(answer.get(name, "-"))[:100], []).append(node)
        for value, nodes in values.items():
            rows.append(
                {"setting": name, "value": value, "node": "all" if len(nodes) == len(answers) else ", ".join(nodes)}
            )
    return rows
