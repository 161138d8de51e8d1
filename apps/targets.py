"""What a command acts on: the messages of a channel, or the jobs of a queue, which clients of beanstalkd call a tube.

Commands have the words of channels: a state, an action and ids. This file alone knows what they are for queues, and how nsqd is
asked for either.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

STATES = ("ready", "in_flight", "deferred", "buried")  # of messages
_STATES_OF_JOBS = {"ready": "ready", "in_flight": "reserved", "deferred": "delayed", "buried": "buried"}
_OTHER_WORDS = {"queued": "ready", "active": "in_flight", "reserved": "in_flight", "delayed": "deferred"}
STATE_HELP = "ready, in_flight, deferred or buried; of jobs also queued, reserved (active) or delayed"
# by action: what the path of its route ends in, and the key of the answer that counts what was done
_OF_MESSAGES = {
    "finish": ("finish", "finished"),
    "requeue": ("requeue", "requeued"),
    "kick": ("kick", "kicked"),
    "bury": ("bury", "buried"),
    "move": ("move", "moved"),
}
_OF_JOBS = {
    "finish": ("delete", "deleted"),
    "requeue": ("release", "released"),
    "kick": ("kick", "kicked"),
    "bury": ("bury", "buried"),
}
_ONLY_OF_MESSAGES = ("delay", "reason")  # arguments of actions


class WrongTarget(Exception):
    """The command cannot act on what was named. The argument is one line that says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A channel or a queue as a command acts on it: the routes and arguments of nsqd that list and change what is in it."""

    names: dict[str, str]  # the arguments that name it
    path: str  # of the route that lists what is in it; those of actions are below it
    listed: str  # the key of what that route lists
    ids: str  # the argument that names single ones of these
    states: dict[str, str]  # by the state of messages
    actions: dict[str, tuple[str, str]]

    def listing(self, state: str) -> dict[str, str]:
        """Return the arguments of the route that lists what is in a state."""
        return self.names | {"state": self.states[state]}

    def action(self, arguments: argparse.Namespace) -> tuple[str, str, dict[str, Any]]:
        """Return the path of an action's route, the key of its answer that counts, and its arguments. Raises WrongTarget."""
        name = arguments.action
        if name not in self.actions:
            raise WrongTarget(f"{name}: only messages of a channel can be treated so, not the jobs of a queue")
        ids, others = (arguments.offset, arguments.id) if self.ids == "offset" else (arguments.id, arguments.offset)
        if others is not None:
            raise WrongTarget(f"{name}: --offset names messages of a channel, and --id jobs of a queue")
        if (ids is None) == (arguments.state is None):
            raise WrongTarget(f"{name}: give either --{self.ids} or --state")
        chosen: dict[str, Any] = (
            self.names | {self.ids: ids} if ids else self.listing(arguments.state) | {"count": arguments.count}
        )
        given = {option: getattr(arguments, option, None) for option in (*_ONLY_OF_MESSAGES, "to")}
        given = {option: value for option, value in given.items() if value}
        if self.ids == "id" and given:
            raise WrongTarget(f"{name}: --{next(iter(given))} is for messages of a channel, not for jobs of a queue")
        end, done = self.actions[name]
        return f"{self.path}/{end}", done, chosen | given


def add_target(command: argparse.ArgumentParser) -> None:
    """Add the arguments by which a command is told what it acts on."""
    command.add_argument("topic", nargs="?", help="name of the topic; with CHANNEL, or in their place --queue")
    command.add_argument("channel", nargs="?", help="name of the channel")
    command.add_argument(
        "--queue",
        "--tube",
        metavar="NAME",
        help="act on the jobs of this queue of Disque's, or tube of beanstalkd's clients",
    )


def target_of(arguments: argparse.Namespace) -> Target:
    """Return what the command acts on. Raises WrongTarget."""
    if arguments.queue is not None:
        if arguments.topic is not None:
            raise WrongTarget("name either TOPIC and CHANNEL, or --queue")
        return Target({"tube": arguments.queue}, "/tube/jobs", "jobs", "id", _STATES_OF_JOBS, _OF_JOBS)
    if arguments.channel is None:
        raise WrongTarget("name TOPIC and CHANNEL, or --queue")
    names = {"topic": arguments.topic, "channel": arguments.channel}
    same = dict(zip(STATES, STATES, strict=True))
    return Target(names, "/channel/messages", "messages", "offset", same, _OF_MESSAGES)


def state_word(text: str) -> str:
    """Return the state of messages that a word of any protocol means. Raises ArgumentTypeError."""
    word = _OTHER_WORDS.get(text, text)
    if word not in STATES:
        raise argparse.ArgumentTypeError(f"expected {STATE_HELP}")
    return word
