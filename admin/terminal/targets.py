"""The target of a command: the messages of a channel, or the jobs of a queue, which clients of beanstalkd call a tube.

Commands use the terms of channels for states, actions and ids. This file alone has those of queues, and the routes of both.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from admin.messages.bulk import route_of
from admin.terminal.arguments import name_of
from shared.terminal.commands import WrongArguments

STATES = ("ready", "in_flight", "deferred", "buried")  # of messages
_STATES_OF_JOBS = {"ready": "ready", "in_flight": "reserved", "deferred": "delayed", "buried": "buried"}
_SYNONYMS = {"queued": "ready", "active": "in_flight", "reserved": "in_flight", "delayed": "deferred"}
STATE_HELP = "ready, in_flight, deferred or buried; of jobs also queued, reserved (active) or delayed"
# by action: the end of its route, and the key of its count in the response
_OF_BOTH = {"kick": ("kick", "kicked"), "bury": ("bury", "buried")}
_OF_MESSAGES = {
    "finish": ("finish", "finished"),
    "requeue": ("requeue", "requeued"),
    "move": ("move", "moved"),
    "redrive": ("redrive", "moved"),
    **_OF_BOTH,
}
_OF_JOBS = {"finish": ("delete", "deleted"), "requeue": ("release", "released"), **_OF_BOTH}
_ONLY_OF_MESSAGES = ("delay", "reason")  # arguments of actions


class WrongTarget(WrongArguments):
    """The command cannot act on this target. The text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A channel or a queue: the routes of nsqd that list and change its messages or jobs, and their arguments."""

    names: dict[str, str]  # the arguments that name it
    path: str  # of the route that lists messages or jobs; the routes of actions are below it
    listed: str  # the key of the list in the response
    ids: str  # the argument with the ids of messages or jobs
    states: dict[str, str]  # by the state of messages
    actions: dict[str, tuple[str, str]]

    @property
    def kind(self) -> str:
        """The word for it: channel or queue."""
        return "channel" if self.ids == "offset" else "queue"

    @property
    def name(self) -> str:
        """The name for people: TOPIC/CHANNEL, or that of the queue."""
        return "/".join(self.names.values())

    def end(self, action: str) -> str:
        """Return the end of an action's route, below `path`."""
        return self.actions[action][0]

    def listing(self, state: str) -> dict[str, str]:
        """Return the arguments of the route that lists the messages or jobs in a state."""
        return self.names | {"state": self.states[state]}

    def action(self, arguments: argparse.Namespace) -> tuple[str, str, dict[str, Any]]:
        """Return the path of an action's route, the key of its answer that counts, and its arguments. Raises WrongTarget."""
        name = arguments.action
        if name not in self.actions:
            raise WrongTarget("only messages of a channel can be treated so, not the jobs of a queue")
        ids, others = (arguments.offset, arguments.id) if self.ids == "offset" else (arguments.id, arguments.offset)
        if others is not None:
            raise WrongTarget("--offset names messages of a channel, and --id jobs of a queue")
        if (ids is None) == (arguments.state is None):
            raise WrongTarget(f"give either --{self.ids} or --state")
        chosen: dict[str, Any] = (
            self.names | {self.ids: ids} if ids else self.listing(arguments.state) | {"count": arguments.count}
        )
        given = {option: getattr(arguments, option, None) for option in (*_ONLY_OF_MESSAGES, "to")}
        given = {option: value for option, value in given.items() if value}
        if self.ids == "id" and given:
            raise WrongTarget(f"--{next(iter(given))} is for messages of a channel, not for jobs of a queue")
        end, done = self.actions[name]
        return route_of(self.path, end), done, chosen | given


def add_target(command: argparse.ArgumentParser) -> None:
    """Add the arguments that name the target of a command."""
    command.add_argument(
        "topic", nargs="?", type=name_of, help="name of the topic; with CHANNEL, or in their place --queue"
    )
    command.add_argument("channel", nargs="?", type=name_of, help="name of the channel")
    command.add_argument(
        "--queue",
        "--tube",
        metavar="NAME",
        help="act on the jobs of this queue of Disque's, or tube of beanstalkd's clients",
    )


def target_of(arguments: argparse.Namespace) -> Target:
    """Return the target of a command. Raises WrongTarget."""
    if arguments.queue is not None:
        if arguments.topic is not None:
            raise WrongTarget("name either TOPIC and CHANNEL, or --queue")
        return Target({"tube": arguments.queue}, "/tube/jobs", "jobs", "id", _STATES_OF_JOBS, _OF_JOBS)
    if arguments.channel is None:
        raise WrongTarget("name TOPIC and CHANNEL, or --queue")
    names = {"topic": arguments.topic, "channel": arguments.channel}
    same = dict(zip(STATES, STATES, strict=True))
    return Target(names, "/channel/messages", "messages", "offset", same, _OF_MESSAGES)


def state_of(text: str) -> str:
    """Return the state of messages for a term of any protocol. Raises ArgumentTypeError."""
    state = _SYNONYMS.get(text, text)
    if state not in STATES:
        raise argparse.ArgumentTypeError(f"expected {STATE_HELP}")
    return state
