"""`penstock status`, `nodes`, `alarms`: whether all is well. The rules are those of nsqadmin's alarms."""

from __future__ import annotations

import argparse
import asyncio
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Any

from admin.alarms.book import AlarmBook
from admin.alarms.checks import Checks
from admin.alarms.monitor import Monitor
from admin.alarms.rules import BY_NAME, RULES, WINDOW, Severity, Thresholds
from admin.alarms.state_store import StateStore
from admin.alarms.subject import Subject
from admin.nodes.cluster import AllFailed
from admin.nodes.inventory import NodeState
from admin.nodes.snapshot import NodeFacts, Snapshot
from admin.nodes.views import count, size
from admin.terminal.arguments import add_command, duration
from admin.terminal.session import Session
from shared.cluster.answer import LEFT
from shared.cluster.health import health_of
from shared.cluster.state import ClusterState
from shared.counted import counted
from shared.json_fields import number
from shared.log import escape
from shared.terminal.commands import Commands, ExitCode, WrongArguments
from shared.terminal.output import Column, Row, has_colors, numbers, paint, print_rows, width
from shared.values import SECOND

INTERVAL = float("inf")  # s between two checks: so a slow node is asked in both checks of --over
MINUTE = 60 * SECOND  # ns
SHOWN = 10  # alarms on the screen of `status`
WINDOWED = tuple(rule.name for rule in RULES if WINDOW in rule.thresholds)
HOURS = ("disk-days", "backlog-growing-slowly")  # rules that compare hours
SUMS = ("topics", "channels", "clients", "depth", "in_flight", "deferred", "buried", "messages")
PLACES = {rule.name: place for place, rule in enumerate(RULES)}
_STYLES = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.INFO: ""}


class Status(IntEnum):
    """The state of all nodes together, which is the exit code of `penstock status`."""

    WHOLE = 0
    DEGRADED = 1
    AT_RISK = 2


WORDS = {Status.WHOLE: "whole", Status.DEGRADED: "degraded", Status.AT_RISK: "at risk"}
CHECKED = {Status.WHOLE: "OK", Status.DEGRADED: "WARNING", Status.AT_RISK: "CRITICAL"}  # as monitoring plugins have it
_NODE_STYLES = {"up": "", "degraded": "yellow"}
_COLORS = {Status.WHOLE: "green", Status.DEGRADED: "yellow", Status.AT_RISK: "red"}
CODES = """
Exit code: 0 if all is well, 1 if there is a warning, 2 if there is a critical alarm or messages are at risk, 3 if no node
answers.
"""
NODES = (
    Column("node"), Column("state", style=lambda row: _NODE_STYLES.get(row["state"], "red")),
    Column("cluster_node", "ID", is_number=True), Column("version"),
    *numbers("topics", "depth", "in_flight"), Column("disk_free", is_number=True), Column("sync_p99", is_number=True),
    Column("host"), Column("remark"),
)  # fmt: skip
ALARMS = (
    Column("severity", style=lambda row: _STYLES[Severity[row["severity"].upper()]]), Column("rule"), Column("subject"),
    Column("text", "PROBLEM"),
)  # fmt: skip


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    what = "say on one screen whether all is well: nodes, topics, backlog, alarms"
    status = add_command(commands, "status", _status, what, "status\nstatus --check --context production", ("alarm",))
    status.add_argument("--check", action="store_true", help="print one line, as monitoring plugins do")
    status.epilog = f"{status.epilog}{CODES}"
    add_command(commands, "nodes", _nodes, "list nodes with their state, disk and role", "nodes\nnodes --json")
    what = "list the alarms that hold now, the most severe first"
    alarms = add_command(commands, "alarms", _alarms, what, "alarms\nalarms --over 30s\nalarms --json", ("alarm",))
    for command in (status, alarms):
        command.add_argument(
            "--over",
            type=duration,
            default=0,
            metavar="DURATION",
            help="check twice, this far apart, to compare counts",
        )
    compared = f"Only with --over: {', '.join(WINDOWED)}. Only in nsqadmin, which compares hours: {', '.join(HOURS)}."
    alarms.epilog = f"{alarms.epilog}\n{compared}\n{CODES}"


async def snapshot(session: Session, over: int = 0) -> tuple[Snapshot, list[Subject]]:
    """Return the state of all nodes, and the alarms, the most severe first. Raises NoAnswer.

    `over`: ns between two checks, which rules compare in place of their windows; 0: there is one check. A node that gives no
    answer counts as down: there is no later check that could find it up again.
    """
    windows = [f"{rule}.minutes={over / MINUTE}" for rule in WINDOWED if over]
    try:
        checks = Checks(Thresholds((*session.context.alarm, *windows)))
    except ValueError as error:
        raise WrongArguments(f"alarm: {error}") from None
    monitor = Monitor(session.queries, checks, AlarmBook(), StateStore(None), INTERVAL, clock=session.clock)
    try:
        session.take(await session.queries.producers())
    except AllFailed as failed:
        raise session.no_answer(failed) from None
    for seconds in (0, over / SECOND) if over else (0,):
        if seconds and sys.stderr.isatty():
            print(f"checking again in {seconds:g} s", file=sys.stderr)
        await asyncio.sleep(seconds)
        await monitor.ping(asks_names=False)
        for silent in monitor.silent:  # the requests that follow do not wait for it
            session.queries.fallback.note_failure(silent)
        await monitor.check()
    look = monitor.last
    session.note(monitor.failures.values())
    look.nodes = {address: _down(look, one) for address, one in look.nodes.items()}
    gone = {address: one.record.reason for address, one in look.nodes.items() if one.state.is_gone}
    session.note(why or f"http://{address} gives no answer" for address, why in gone.items())
    found = await monitor.with_publishers(checks.check(look))
    return look, sorted(found, key=lambda one: (one.severity, PLACES[one.rule], -one.value, one.key))


def _down(look: Snapshot, node: NodeFacts) -> NodeFacts:
    """Return a node, as down if it gives no answer. The time since when is not known."""
    if node.state is not NodeState.UNANSWERED:
        return node
    member = look.member(node.record.address)
    led_by = member[1].led_by if member is not None else None
    state = NodeState.STOPPED if member is not None and member[1].state == LEFT else NodeState.DOWN
    return replace(node, state=state, record=replace(node.record, failing_since=look.at, led_by=led_by))


# Alarms


async def _alarms(session: Session, arguments: argparse.Namespace) -> int:
    _, found = await snapshot(session, arguments.over)
    rows = [_alarm(one) for one in found]
    print_rows(rows, ALARMS, as_json=arguments.json, nothing="no alarms", is_cut=False)  # a problem is read to its end
    if found and not arguments.json:
        print("\n".join(("", *_actions(found))))
    return min((_status_of(one.severity) for one in found[:1]), default=Status.WHOLE)


def action_of(alarm: Subject) -> str:
    """Return the action that an operator takes."""
    return alarm.advice or BY_NAME[alarm.rule].action


def _actions(found: list[Subject]) -> Iterator[str]:
    """Yield lines that say what to do, once for each rule and action."""
    actions = dict.fromkeys((one.rule, action_of(one)) for one in found)
    for rule, action in actions:
        yield textwrap.fill(
            f"{rule}: {action} See docs/{BY_NAME[rule].runbook}", width() or 1000, break_on_hyphens=False
        )


def _alarm(one: Subject) -> Row:
    rule = BY_NAME[one.rule]
    return {
        "severity": one.severity.word, "rule": one.rule, "subject": one.name, "topic": one.topic, "value": one.value,
        "text": one.words, "meaning": rule.meaning, "action": action_of(one), "runbook": f"docs/{rule.runbook}",
    }  # fmt: skip


def _status_of(severity: Severity) -> Status:
    return {Severity.CRITICAL: Status.AT_RISK, Severity.WARNING: Status.DEGRADED}.get(severity, Status.WHOLE)


# Nodes


async def _nodes(session: Session, arguments: argparse.Namespace) -> int:
    look, alarms = await snapshot(session)
    urgent = {one.node: one.words for one in reversed(alarms) if one.severity < Severity.INFO}  # the worst of each node
    rows = [_node(look, address, one, urgent.get(address, "")) for address, one in sorted(look.nodes.items())]
    if not arguments.json:
        rows = [
            row
            | {
                "disk_free": _free(row),
                "sync_p99": _ms(row["sync_p99_ms"]),
                "version": row["version"].partition(" (")[0],
            }
            for row in rows
        ]
    print_rows(rows, NODES, as_json=arguments.json)
    return ExitCode.DONE


def _node(look: Snapshot, address: str, one: NodeFacts, alarm: str) -> dict[str, Any]:
    """Return a row. `alarm`: the problem of the worst alarm about the node, or ""."""
    producer, figures = one.record.producer, one.record.figures
    member = look.member(address)
    return {
        "node": address, "host": producer.hostname, "version": producer.runs,
        "state": "degraded" if alarm and one.state is NodeState.UP else one.state.value,
        "topics": figures.get("topics", len(producer.topics)), "depth": figures.get("depth"),
        "in_flight": figures.get("in_flight"), "buried": figures.get("buried"),
        "disk_free": one.disk_free if one.disk_total else None, "disk_total": one.disk_total or None,
        "sync_p99_ms": one.sync_p99_ms, "cluster_node": member[1].node if member is not None else None,
        "remark": _remark(one) or alarm,
    }  # fmt: skip


def _remark(one: NodeFacts) -> str:
    """Return the remark about a node that an operator needs, or ""."""
    if one.record.led_by is not None:
        return f"node {one.record.led_by} leads its log"
    if one.state.is_gone:
        return one.record.reason
    if one.record.is_draining:
        return "drained" if one.record.is_drained else "draining"
    return one.refusal or (one.health if one.health != "OK" else "")


def _free(row: Row) -> str:
    free, total = row["disk_free"], row["disk_total"]
    return f"{size(free)} ({100 * free // total} %)" if total else "-"


def _ms(value: float) -> str:
    return f"{value:,.1f} ms" if value else "-"


# Status


async def _status(session: Session, arguments: argparse.Namespace) -> int:
    look, alarms = await snapshot(session, arguments.over)
    sums = await _sums(session)
    state = _state(look, alarms, is_partial=bool(session.missing))
    data = _described(look, alarms, sums, state) | {"missing": list(session.missing.values())}
    if arguments.json:
        print_rows([data], (), as_json=True)
    elif arguments.check:
        print(_one_line(data, state))
        session.missing.clear()  # a plugin prints one line, which counts them
    else:
        named = bool(session.context.nsqd_http_address)
        print("\n".join(_screen(data, look, alarms, state, expects_nodes=named)))
    return state


async def _sums(session: Session) -> dict[str, int]:
    """Return the sums over all topics of the nodes that answer. A channel counts once, on however many nodes it is."""
    found = session.take((await session.queries.overview(("channels",))).now)
    totals = found.totals | {"topics": len(found.names), "channels": sum(found.columns["channels"].values())}
    return {name: totals[name] for name in SUMS}


def _state(look: Snapshot, alarms: list[Subject], *, is_partial: bool) -> Status:
    levels = [health_of(cluster).level for cluster in look.clusters]
    worst = max([int(_status_of(one.severity)) for one in alarms] + [int(level) for level in levels], default=0)
    return Status(max(worst, int(is_partial)))


def _described(look: Snapshot, alarms: list[Subject], sums: dict[str, int], state: Status) -> dict[str, Any]:
    """Return the object that --json prints."""
    up = sum(not one.state.is_gone for one in look.nodes.values())
    return {
        "state": WORDS[state], "nodes": len(look.nodes), "nodes_up": up, "nsqlookupds": len(look.lookupds),
        "nsqlookupds_up": sum(not why for why in look.lookupds.values()), **sums, "paused": _paused(look),
        "clusters": [_cluster(one) for one in look.clusters], "alarms": [_alarm(one) for one in alarms],
    }  # fmt: skip


def _paused(look: Snapshot) -> list[str]:
    """Return the topics, channels and tubes that are paused."""
    topics = [name for name, one in look.topics.items() if one.paused]
    channels = ["/".join(key) for key, one in look.channels.items() if one.paused]
    return [*sorted(topics), *sorted(channels), *sorted({f"tube {tube}" for tube, _ in look.paused_tubes})]


def _cluster(cluster: ClusterState) -> dict[str, Any]:
    found = health_of(cluster)
    return {
        "name": cluster.name, "state": WORDS[Status(found.level)], "reasons": [*found.at_risk, *found.degraded],
        "safe_to_lose_a_node": found.is_safe,
    }  # fmt: skip


def _one_line(data: dict[str, Any], state: Status) -> str:
    """Return the line of a monitoring plugin, with performance data after the bar."""
    first = f": {data['alarms'][0]['subject']}: {data['alarms'][0]['text']}" if data["alarms"] else ""
    words = escape(
        f"{data['nodes_up']} of {counted(data['nodes'], 'node')} up, {counted(len(data['alarms']), 'alarm')}{first}"
    ).replace("|", "/")
    figures = " ".join(f"{name}={number(data[name])}" for name in ("depth", "in_flight", "deferred", "buried"))
    return f"PENSTOCK {CHECKED[state]} - {words} | {figures} alarms={len(data['alarms'])}"


def _screen(
    data: dict[str, Any], look: Snapshot, alarms: list[Subject], state: Status, *, expects_nodes: bool
) -> Iterator[str]:
    """Yield the lines. `expects_nodes`: the context names nodes, so that one which is lost is not left out."""
    colors = has_colors(sys.stdout)
    yield f"State:    {paint(WORDS[state].upper(), _COLORS[state], colors)}"
    lookupds = (
        f", {data['nsqlookupds_up']} of {counted(data['nsqlookupds'], 'nsqlookupd')}" if data["nsqlookupds"] else ""
    )
    known = data["nodes"] if expects_nodes else counted(data["nodes"], "registered node")
    yield f"Nodes:    {data['nodes_up']} of {known} up{lookupds}"
    for cluster in data["clusters"]:
        safe = "safe to lose a node" if cluster["safe_to_lose_a_node"] else "not safe to lose a node"
        yield f"Cluster:  {escape(cluster['name'])}: {cluster['state']}, {safe}"
        yield from (f"          {escape(reason)}" for reason in cluster["reasons"][:SHOWN])
    readers = f"{counted(data['channels'], 'channel')}, {counted(data['clients'], 'consumer')}"
    yield f"Topics:   {count(data['topics'])} with {readers}"
    states = ", ".join(f"{count(data[key])} {key.replace('_', ' ')}" for key in ("in_flight", "deferred", "buried"))
    yield f"Backlog:  {count(data['depth'])} ready, {states}"
    if data["paused"]:
        more = f" and {len(data['paused']) - SHOWN} more" if len(data["paused"]) > SHOWN else ""
        yield f"Paused:   {escape(', '.join(data['paused'][:SHOWN]))}{more}"
    # those of which the reasons above are the text
    above = [one for one in alarms if one.rule == "cluster"] if data["clusters"] else []
    others = [one for one in alarms if one not in above]
    note = f", {len(above)} of them about the cluster" if above else ""
    yield f"Alarms:   {len(alarms) or 'none'}{note}"
    for one in others[:SHOWN]:
        word = paint(one.severity.word, _STYLES[one.severity], colors)
        yield f"  {word}: {BY_NAME[one.rule].title}: {escape(f'{one.name}: {one.words}')}"
    if len(others) > SHOWN:
        yield f"  {len(others) - SHOWN} more"
    if alarms:
        yield "What to do: penstock alarms"
