"""`penstock messages`, `show`, `peek`, and the actions on messages and jobs, from `finish` to `redrive`.

They see and act on all nodes that have the channel or the queue. An offset, or a job's id, belongs to one node, which --node
names; the output of `messages` and `peek --json` has it. The exit code is 1 if a node refused or gave no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

from admin.messages.bulk import BulkWork
from admin.messages.message_list import STATES, merged
from admin.messages.tasks import FASTEST
from admin.nodes.merge import fields
from admin.nodes.upstreams import Gathered, UpstreamError
from admin.nodes.views import age, body_of, message_view, size
from admin.output.message_filters import Filters
from admin.terminal.arguments import add_command, name_of
from admin.terminal.session import Session
from admin.terminal.targets import STATE_HELP, Target, add_target, state_of, target_of
from shared.counted import counted
from shared.http.errors import HttpError
from shared.json_fields import JsonObject, number, objects, text
from shared.log import escape
from shared.terminal.commands import CommandError, Commands, ExitCode, WrongArguments, milliseconds, whole_number
from shared.terminal.confirm import add_confirmation, is_confirmed
from shared.terminal.output import Column, body_line, body_text, plain, print_rows

ACTIONS = {
    "finish": "finish messages or jobs: they are not delivered again",
    "requeue": "requeue messages, at once or after a delay, or jobs that are out",
    "kick": "make messages ready again, with their attempts reset to 0, or jobs that are buried or delayed",
    "bury": "bury messages or jobs: they are not delivered until they are kicked or finished",
    "move": "publish messages to another topic, and finish them in this channel",
    "redrive": "move dead letters back to the topics that they come from",
}
# asked about if they act on several messages of a state; of the others, only --all is
FINAL = ("finish", "move", "redrive")
PAGE = 1000  # messages in one answer
MOST_PEEKED = 1_000_000
# messages that a preview with filters examines, of all nodes: some 4 s; and in one request
MOST_EXAMINED, EXAMINED_AT_ONCE = 10_000, 200
MOST_SCANNED = 20_000  # messages of a node in one state in which `show` looks for an id
PREVIEW = 64 * 1024  # bytes of a body: as many as nsqd sends
FILTERS = {"contains", "header", "reason", "published_before"}  # arguments with which a page may have fewer messages
_ID = re.compile("[0-9a-f]{16}")
COLUMNS = (
    Column("offset", is_number=True, text=lambda offset: escape(str(offset))), Column("id"), Column("age", is_number=True),
    Column("attempts", is_number=True), Column("size", is_number=True), Column("node"), Column("body"), Column("reason"),
)  # fmt: skip


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    for name, run, what in (
        ("messages", _messages, "list messages of a channel, or jobs of a queue, as a table; delivery is not affected"),
        ("peek", _peek, "print messages of a channel, or jobs of a queue; delivery is not affected"),
    ):
        command = add_command(
            commands, name, run, what, f"{name} orders mail --state buried -n 3\n{name} --queue pictures"
        )
        add_target(command)
        command.add_argument(
            "--state",
            type=state_of,
            default="ready",
            metavar="STATE",
            help=f"their state: {STATE_HELP} (default: ready)",
        )
        text_ = "only messages with this text in the id, the body or a header"
        command.add_argument("--grep", default="", metavar="TEXT", help=text_)
        count = whole_number(0, MOST_PEEKED)
        command.add_argument("-n", "--limit", type=count, default=10, metavar="N", help="print N at most (default: 10)")
        command.add_argument("--node", metavar="NODE", help="only this node: its HTTP address or host name")
    show = add_command(commands, "show", _show, "print one message with all that is known of it", "show orders mail 17")
    show.add_argument("topic", type=name_of, metavar="TOPIC")
    show.add_argument("channel", type=name_of, metavar="CHANNEL")
    show.add_argument("message", metavar="ID", help="its id, 16 digits, or its offset")
    show.add_argument("--node", metavar="NODE", help="only this node: its HTTP address or host name")
    for name, what in ACTIONS.items():
        _add_action(commands, name, what)


def _add_action(commands: Commands, name: str, what: str) -> None:
    more = " --to other" if name == "move" else ""
    act = add_command(
        commands,
        name,
        _act,
        what,
        f"{name} orders mail --state buried --all{more}\n{name} orders mail --offset 17{more}",
    )
    add_target(act)
    act.add_argument("--node", metavar="NODE", help="only this node: its HTTP address or host name")
    act.add_argument("--offset", metavar="N,N", help="offsets of the messages, as printed by peek --json")
    act.add_argument(
        "--id", metavar="ID,ID", help="ids of the jobs, with --queue: numbers of beanstalkd, or D-... of Disque"
    )
    act.add_argument("--state", type=state_of, metavar="STATE", help=f"the first --count in this state: {STATE_HELP}")
    which = act.add_mutually_exclusive_group()
    count = whole_number(1, MOST_PEEKED)
    which.add_argument(
        "--count", type=count, default=1, metavar="N", help="number of messages, with --state (default: 1)"
    )
    which.add_argument("--all", action="store_true", help="all messages in the state")
    act.add_argument(
        "--grep", default="", metavar="TEXT", help="with --state: only with this text in the id, the body or a header"
    )
    act.add_argument("--header", default="", metavar="NAME[=VALUE]", help="with --state: only with this header")
    act.add_argument(
        "--older", default="", metavar="AGE", help="with --state: only published longer ago, such as 90m or 2d"
    )
    act.add_argument(
        "--buried-for", default="", metavar="TEXT", help="with --state buried: only with this in the reason"
    )
    rate = whole_number(1, FASTEST)
    act.add_argument("--rate", type=rate, default=FASTEST, metavar="N", help="act on N per second at most")
    if name == "requeue":
        act.add_argument(
            "--delay", type=milliseconds, default=0, metavar="DURATION", help="such as 10s (default: at once)"
        )
    if name == "bury":
        act.add_argument("--reason", metavar="TEXT", help="reason, which peek --json shows")
    if name == "move":
        act.add_argument("--to", required=True, type=name_of, metavar="TOPIC", help="the topic to publish to")
    add_confirmation(act)
    act.set_defaults(action=name)


# To see


async def _messages(session: Session, arguments: argparse.Namespace) -> int:
    target = target_of(arguments)
    found = await _listed(session, target, arguments, 200)
    now = session.clock()
    rows = [_row(one, now, as_json=arguments.json) for one in found]
    nothing = f"no {target.listed[:-1]} is {target.states[arguments.state]}" + " and has this text" * bool(
        arguments.grep
    )
    print_rows(rows, COLUMNS, as_json=arguments.json, nothing=nothing)
    return ExitCode.DONE


def _row(one: JsonObject, now: int, *, as_json: bool) -> JsonObject:
    """Return a message of a list as a row."""
    if as_json:
        return one
    shown = message_view(one)
    is_job = "disque_id" in one
    return {
        "offset": one.get("offset", "-"), "id": text(one.get("disque_id")) or str(one.get("id", "-")),
        "age": age(number(one.get("timestamp")), now) if not is_job else f"{number(one.get('age'))} s",
        "attempts": number(one.get("attempts") or one.get("reserves")), "size": size(number(one.get("body_size"))),
        "node": one["node"], "reason": text(one.get("reason")), "body": _first_line(one, shown),
    }  # fmt: skip


def _first_line(one: JsonObject, shown: JsonObject) -> str:
    if shown["waits"]:
        return "(waits for copies on other nodes)"
    return str(shown["hex"].partition("\n")[0]) if shown["is_binary"] else plain(shown["text"][:200])


async def _peek(session: Session, arguments: argparse.Namespace) -> int:
    waiting = 0
    for one in await _listed(session, target_of(arguments), arguments, PREVIEW):
        if arguments.json:
            sys.stdout.buffer.write(json.dumps(one).encode() + b"\n")
        elif one.get("waiting_for_copies"):
            waiting += 1
        else:
            sys.stdout.buffer.write(body_line(body_of(one)))
    sys.stdout.buffer.flush()
    if waiting:
        print(f"{counted(waiting, 'message')} without a body yet: waiting for copies on other nodes", file=sys.stderr)
    return ExitCode.DONE


async def _listed(session: Session, target: Target, arguments: argparse.Namespace, preview: int) -> list[JsonObject]:
    """Return the first --limit messages of all nodes, each with its `node`: the earliest of their next ones first."""
    nodes = await _nodes(session, target, arguments.node)
    asked = target.listing(arguments.state) | {"preview": str(preview)}
    if arguments.grep and target.ids == "id":
        raise WrongArguments("--grep is for messages of a channel, not for jobs of a queue")
    asked |= {"contains": arguments.grep} if arguments.grep else {}
    pages = await session.direct.all_of(nodes, lambda node: _first(session, node, target, asked, arguments.limit))
    _note(session, pages, target)
    return [one | {"node": node} for node, one in merged(pages.answers, arguments.state, arguments.limit)]


async def _first(session: Session, node: str, target: Target, asked: dict[str, str], limit: int) -> list[JsonObject]:
    """Return the first `limit` messages of a node in its order. Raises UpstreamError."""
    return [one async for page in _pages(session, node, target, asked, limit) for one in page][:limit]


async def _pages(
    session: Session, node: str, target: Target, asked: dict[str, str], limit: int
) -> AsyncIterator[list[JsonObject]]:
    """Yield pages with the first messages of a node, until they are `limit` messages or more. Raises UpstreamError."""
    after, left = "", limit
    while left > 0:
        most = PAGE if asked.keys() & FILTERS else min(PAGE, left)
        page = {"limit": str(most)} | ({"after": after} if after else {})
        answer = await session.direct.get_object(node, target.path, asked | page)
        found = objects(answer.get(target.listed))
        yield found
        left -= len(found)
        before, after = after, text(answer.get("next"))
        if not after or after == before:
            break


async def _show(session: Session, arguments: argparse.Namespace) -> int:
    target = target_of(argparse.Namespace(**vars(arguments), queue=None))
    nodes = await _nodes(session, target, arguments.node)
    is_id = _ID.fullmatch(arguments.message) is not None
    if not is_id and not (arguments.message.isascii() and arguments.message.isdigit()):
        raise WrongArguments(f"{arguments.message[:100]!r} is neither an id, 16 digits of 0-9a-f, nor an offset")
    find = _by_id if is_id else _by_offset
    pages = await session.direct.all_of(nodes, lambda node: find(session, node, target, arguments.message))
    _note(session, pages, target)
    found = [one | {"node": node} for node, one in pages.answers.items() if one]
    for one in found:
        if arguments.json:
            print(json.dumps(one))
        else:
            print("\n".join(_described(one, session.clock())))
    if not found:
        raise CommandError(f"no node has message {arguments.message} in {arguments.topic}/{arguments.channel}")
    return ExitCode.DONE


async def _by_offset(session: Session, node: str, target: Target, offset: str) -> JsonObject:
    """Return the message at an offset of a node. Raises UpstreamError."""
    answer = await session.direct.get_object(
        node, "/channel/message", target.names | {"offset": offset, "format": "json"}
    )
    return dict(answer)


async def _by_id(session: Session, node: str, target: Target, message_id: str) -> JsonObject:
    """Return the message with an id, among the first MOST_SCANNED in each state of a node; {} if it is not there."""
    for state in STATES:
        for one in await _first(session, node, target, target.listing(state) | {"preview": "0"}, MOST_SCANNED):
            if one.get("id") == message_id:
                whole = await _by_offset(session, node, target, str(number(one.get("offset"))))
                return one | whole | {"state": state}
    return {}


def _described(one: JsonObject, now: int) -> Iterable[str]:
    """Yield the lines about a message: its id, state, attempts and headers, then the body."""
    shown = message_view(one)
    yield f"ID:         {plain(shown['id'])} at offset {shown['offset']} of {one['node']}"
    yield f"Published:  {age(shown['timestamp'], now)} ago"
    if state := text(one.get("state")):
        reason = f", because: {plain(shown['reason'])}" if shown["reason"] else ""
        yield f"State:      {state}{reason}"
    yield f"Attempts:   {shown['attempts']}, of which {shown['failures']} failed"
    yield from (f"Header:     {plain(name)}: {plain(value)}" for name, value in shown["headers"].items())
    yield f"Body:       {size(shown['body_size'])}"
    yield ""
    yield shown["hex"] if shown["is_binary"] else body_text(shown["text"])


# To act


async def _act(session: Session, arguments: argparse.Namespace) -> int:
    target = target_of(arguments)
    path, done, asked = target.action(arguments)
    filters = _filters(session, target, arguments)
    nodes = await _nodes(session, target, arguments.node)
    if arguments.state is None:
        if len(nodes) > 1:
            known = ", ".join(nodes)
            raise WrongArguments(
                f"{len(nodes)} nodes have it, each with offsets and ids of its own: give --node, one of {known}"
            )
        count = len(set((arguments.offset or arguments.id).split(",")))
        if arguments.dry_run:
            is_confirmed(arguments, f"{arguments.action} {count} of {target.name} on {nodes[0]}")
            return ExitCode.DONE
        answers = await session.post(nodes, path, {name: str(value) for name, value in asked.items()})
        acted = sum(number(json.loads(one).get(done)) for one in answers.values())
        code = _report(session, acted, done, arguments)
        if answers and acted < count:
            raise CommandError(
                f"{count - acted:,} of {count:,} are not in {target.name} on {nodes[0]}, or not in a fitting state"
            )
        return code
    return await _act_on_first(session, target, nodes, arguments, filters)


async def _act_on_first(
    session: Session, target: Target, nodes: list[str], arguments: argparse.Namespace, filters: dict[str, str]
) -> int:
    """Act on the first messages in a state that meet the filters, node by node."""
    _, done, asked = target.action(arguments)
    own = {name: str(value) for name, value in asked.items() if name not in ("state", "count")}
    work = BulkWork(session.direct, [], target.path, target.end(arguments.action), target.states[arguments.state], own,
                    filters)  # fmt: skip
    counts = await _counts(session, target, nodes, arguments.state)
    work.nodes = [node for node in nodes if counts[node]]
    total = sum(counts.values())
    wanted = total if arguments.all else min(arguments.count, total)
    on, state = f"in {target.name} on {counted(len(+counts), 'node')}", arguments.state.replace("_", " ")
    if arguments.dry_run or (wanted > 1 and (arguments.all or arguments.action in FINAL)):
        what = f"{wanted:,} of {total:,} {state} {on}"
        if work.filters and work.nodes and (arguments.dry_run or not arguments.yes):
            found = await _examine(session, target, work.nodes, arguments.state, work.filters)
            amount = "all" if arguments.all else f"up to {wanted:,}"
            what = f"{amount} that match, of {total:,} {state} {on}: {found} match"
        if not is_confirmed(arguments, f"{arguments.action} {what}"):
            return ExitCode.DONE if arguments.dry_run else ExitCode.FAILED
    acted = 0
    try:
        while acted < wanted and (step := await work.step(min(PAGE, arguments.rate, wanted - acted))) != 0:
            acted += step or 0
            _progress(acted, wanted)
            if acted < wanted:
                await asyncio.sleep((step or 0) / arguments.rate)
    except UpstreamError:
        pass  # `work.errors` has the failures, of the nodes one by one
    except asyncio.CancelledError:  # Ctrl-C
        _report(session, acted, done, arguments)
        raise
    _progress(acted, wanted, is_over=True)
    session.note(work.errors)
    return _report(session, acted, done, arguments)


def _report(session: Session, acted: int, done: str, arguments: argparse.Namespace) -> int:
    print(json.dumps({done: acted}) if arguments.json else f"{acted} {done}")
    return ExitCode.FAILED if session.missing and not acted else ExitCode.DONE


def _progress(acted: int, wanted: int, *, is_over: bool = False) -> None:
    """Show the progress on a terminal, if the work takes more than one step."""
    if wanted > PAGE and sys.stderr.isatty():
        print(f"\r{acted:,} of {wanted:,}", end="\n" if is_over else "", file=sys.stderr, flush=True)


def _filters(session: Session, target: Target, arguments: argparse.Namespace) -> dict[str, str]:
    """Return the filters of a command as nodes are asked. Raises WrongArguments."""
    filters = Filters(arguments.grep, arguments.header, before=arguments.older, reason=arguments.buried_for)
    if filters and (target.ids == "id" or arguments.state is None):
        raise WrongArguments("filters are for messages of a channel in a --state, not for jobs of a queue")
    try:
        return filters.asked(session.clock())
    except HttpError as error:
        raise WrongArguments(f"--older: {error.text}") from None


async def _counts(session: Session, target: Target, nodes: list[str], state: str) -> Counter[str]:
    """Return the number of messages that each node has in a state."""

    async def count(node: str) -> int:
        answer = await session.direct.get_object(node, target.path, target.listing(state) | {"limit": "0"})
        return number(fields(answer.get("counts")).get(state) if "counts" in answer else answer.get("total"))

    found = await session.direct.all_of(nodes, count)
    _note(session, found, target)
    return Counter(found.answers)


async def _examine(session: Session, target: Target, nodes: list[str], state: str, filters: dict[str, str]) -> str:
    """Return the number of matches among the first MOST_EXAMINED messages, such as "12 of the first 10,000"."""
    asked = target.listing(state) | filters | {"preview": "0", "limit": str(EXAMINED_AT_ONCE)}

    async def examine(node: str) -> tuple[int, int, str]:
        """Return the matches, the messages that were examined, and where the next page begins; "": nowhere."""
        matches = examined = 0
        after = ""
        while True:
            page = await session.direct.get_object(node, target.path, asked | ({"after": after} if after else {}))
            matches += len(objects(page.get("messages")))
            examined += number(page.get("scanned"))
            before, after = after, text(page.get("next"))
            if not after or after == before or not page.get("scanned") or examined >= MOST_EXAMINED // len(nodes):
                return matches, examined, after

    found = await session.direct.all_of(nodes, examine)
    _note(session, found, target)
    matches = sum(count for count, _, _ in found.answers.values())
    examined = sum(count for _, count, _ in found.answers.values())
    is_part = any(after for _, _, after in found.answers.values())
    return f"{matches:,} of the first {examined:,}" if is_part else f"{matches:,}"


async def _nodes(session: Session, target: Target, node: str | None) -> list[str]:
    """Return the nodes that may have the target: all, or the one that is named. Raises CommandError."""
    if node:
        return [(await session.node(node)).address]
    return await session.penstock_nodes(target.names.get("topic", ""))


def _note(session: Session, found: Gathered[Any], target: Target) -> None:
    """Note the errors of nodes, except that some do not have the target. Raises CommandError if there is no answer."""
    errors = [one for one in found.errors if "answered 404" not in one]
    if found.answers:
        session.note(errors)
    elif errors:
        raise session.failure(errors)
    else:
        raise CommandError(f"{target.kind} {target.name} was not found: see penstock {target.kind}s")
