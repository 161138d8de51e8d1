"""`penstock cluster status` and `penstock cluster wait`: whether a cluster is whole, and whether one more node may go."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import httpx

from apps.node_client import open_client, url_of, why_refused
from shared.cluster.answer import MEMBER, NO_RECORD, read_answer
from shared.cluster.health import ClusterHealth, Level, health_of
from shared.cluster.merge import cluster_states
from shared.cluster.state import CLOSED, ClusterState, LogState
from shared.counted import counted
from shared.http.bounded import AnswerError, parse_object, read_whole
from shared.log import escape
from shared.terminal.commands import CommandError, Commands, make_command, seconds
from shared.terminal.context import CREDENTIALS, add_context
from shared.tls.client import why_failed

MOST_ANSWER, MOST_MEMORY = 8 << 20, 64 << 20  # bytes of an answer, and of the parsed answer
MOST_ASKED = 1024  # addresses, as nodes report them of each other
PATIENCE = 5.0  # s for one node to answer
POLL_EVERY = 0.5  # s between two polls of `wait`
REPORT_EVERY = 10.0  # s between two lines with the same reasons
_AMOUNT = re.compile(", [0-9,]+ bytes? behind.*|, the oldest for .*")  # of a reason, which changes all the time
MOST_SHOWN = 20  # reasons of one kind
NO_ANSWER = 3  # exit code: no node responds
STATUS = "say whether a cluster is whole, degraded or at risk, and whether one more node may go"
WAIT = "wait until a cluster is whole, or until one more node may go"
CODES = """
Exit code: 0 if the cluster is whole: all nodes are up, every log has a leader, and every replica is in sync. 1 if it is
degraded: something is down or behind. 2 if messages are at risk: a log has no leader, or its leader alone has all of it. 3 if
no node answers.
"""
DETAILS = f"""
The nodes that are named list the others, and all of them are asked. One more node may go if nothing that was acknowledged
with two copies is lost with any one node, and the others deliver what it has by themselves.
{CODES}
With --json: the level, the reasons, and nodes, logs and copies as nsqadmin's /api/cluster has them. See
docs/troubleshooting/lost-node.md.
"""
WAIT_DETAILS = """
Use it between two steps of an upgrade: stop a node, start it again, penstock cluster wait, the next one. Reasons for waiting
are printed when they change, and every 10 s.

Exit code: 0 as soon as the state is reached; otherwise that of `penstock cluster status`, but at least 1.
"""
WORDS = {Level.WHOLE: "whole", Level.DEGRADED: "degraded", Level.AT_RISK: "at risk"}


class Unreachable(CommandError):
    """No node of a cluster answers, or nodes of several clusters do. The text says so."""

    exit_code = NO_ANSWER


def add_commands(commands: Commands) -> None:
    """Add the commands `status` and `wait` to those of `penstock cluster`."""
    status = make_command(
        commands,
        "status",
        run_status,
        STATUS,
        DETAILS,
        "cluster status\ncluster status --nsqd-http-address 10.0.0.1:4151",
    )
    wait = make_command(commands, "wait", run_wait, WAIT, WAIT_DETAILS, "cluster wait --for safe --timeout 5m")
    for command in (status, wait):
        command.add_argument(
            "--nsqd-http-address",
            action="append",
            metavar="HOST:PORT",
            help="HTTP address of a node, or https://HOST:PORT (may be given multiple times; default: those of the context)",
        )
        add_context(command, CREDENTIALS)
        command.add_argument("--json", action="store_true", help="print a JSON object")
    wait.add_argument(
        "--for", dest="goal", choices=("whole", "safe"), default="whole", help="state to wait for (default: whole)"
    )
    wait.add_argument("--timeout", type=seconds, default="60s", metavar="DURATION", help="for how long (default: 60s)")


def run_status(arguments: argparse.Namespace) -> int:
    """Run `status`, and return its exit code. Raises CommandError."""
    with _client(arguments) as client:
        return _report(*_look(client, arguments), arguments.json)


def run_wait(arguments: argparse.Namespace) -> int:
    """Run `wait`, and return its exit code. Raises CommandError."""
    deadline, due = time.monotonic() + arguments.timeout, 0.0
    reported: list[str] = []
    with _client(arguments) as client:
        while True:
            is_late = time.monotonic() >= deadline
            try:
                cluster, silent = _look(client, arguments)
                reasons = _reasons(cluster, arguments.goal)
                if is_late or not reasons:
                    break
            except Unreachable as error:
                if is_late:
                    raise
                reasons = (str(error),)
            kinds = [_AMOUNT.sub("", reason) for reason in reasons]
            if (kinds != reported or time.monotonic() >= due) and not arguments.json:
                print(escape("waiting: " + "; ".join(reasons[:3])), file=sys.stderr, flush=True)
                reported, due = kinds, time.monotonic() + REPORT_EVERY
            time.sleep(POLL_EVERY)
    level = _report(cluster, silent, arguments.json)
    if not reasons:
        return 0
    print(f"penstock cluster wait: it is not {arguments.goal} after {arguments.timeout:g} s", file=sys.stderr)
    return max(level, Level.DEGRADED)


def _client(arguments: argparse.Namespace) -> httpx.Client:
    try:
        return open_client(arguments, PATIENCE)
    except CommandError as error:
        raise Unreachable(str(error)) from None


def _look(client: httpx.Client, arguments: argparse.Namespace) -> tuple[ClusterState, dict[str, str]]:
    return look(arguments.nodes, lambda address: _ask(client, address))


def _reasons(cluster: ClusterState, goal: str) -> Sequence[str]:
    """Return the reasons why the cluster has not reached the goal yet."""
    health = health_of(cluster)
    return health.unsafe if goal == "safe" else health.at_risk + health.degraded


def _ask(client: httpx.Client, address: str) -> dict[str, Any]:
    """Return the response of a node to /cluster. Raises ValueError, AnswerError, httpx.HTTPError, InvalidURL."""
    with client.stream("GET", f"{url_of(address)}/cluster") as answer:
        content = read_whole(answer.iter_bytes(), MOST_ANSWER)
        if answer.status_code != 200:
            whole = httpx.Response(answer.status_code, content=content)
            advice = {"NO_CLUSTER": "nsqd at {address} is in no cluster: it has no -cluster-address"}
            raise ValueError(why_refused(whole, advice, address))
    return parse_object(content, MOST_MEMORY)


def look(addresses: Sequence[str], ask: Callable[[str], dict[str, Any]]) -> tuple[ClusterState, dict[str, str]]:
    """Ask the nodes at these addresses and all that they name.

    Returns the cluster, and why nodes gave no answer, by address. Raises Unreachable.
    """
    answers: dict[str, dict[str, Any]] = {}
    runs: set[tuple[str, int, str]] = set()  # that have answered: one may have several addresses
    silent: dict[str, str] = {}
    waiting, asked = dict.fromkeys(addresses), set[str]()
    while waiting and len(asked) < MOST_ASKED:
        address = next(iter(waiting))
        del waiting[address]
        asked.add(address)
        try:
            data = ask(address)
        except (httpx.HTTPError, httpx.InvalidURL, AnswerError, ValueError) as error:
            silent[address] = why_failed(error)
            continue
        answer = read_answer(address, data)
        if answer is None:
            answers[address] = data  # the merge reports its error
            continue
        run = answer.name, answer.node, answer.records.get(answer.node, NO_RECORD).log_id
        if run in runs:
            continue
        runs.add(run)
        answers[address] = data
        known = {node for _, node, _ in runs}
        for node, record in answer.records.items():
            if record.standing == MEMBER and node not in known and record.http_address not in {*asked, ""}:
                waiting[record.http_address] = None
    found = cluster_states(answers)
    if not found.clusters:
        why = "; ".join([*found.errors, *(f"{address}: {why}" for address, why in silent.items())])
        raise Unreachable(f"no node of a cluster answers: {why}")
    if len(found.clusters) > 1:
        raise Unreachable(f"these nodes are of several clusters: {', '.join(one.name for one in found.clusters)}")
    return found.clusters[0], silent


def _report(cluster: ClusterState, silent: dict[str, str], as_json: bool) -> int:
    """Print the state of a cluster, and return its level, which is the exit code."""
    health = health_of(cluster)
    if as_json:
        print(json.dumps(described(cluster, health, silent)))
    else:
        print("\n".join(map(escape, lines_of(cluster, health, silent))))
    return int(health.level)


def described(cluster: ClusterState, health: ClusterHealth, silent: dict[str, str]) -> dict[str, Any]:
    """Return the object that --json prints, with the cluster's nodes, logs and copies."""
    return {
        "cluster": cluster.name,
        "level": WORDS[health.level],
        "at_risk": health.at_risk,
        "degraded": health.degraded,
        "safe_to_lose_another_node": health.is_safe,
        "unsafe_because": health.unsafe,
        "no_answer": silent,
        **{name: value for name, value in asdict(cluster).items() if name in ("nodes", "logs", "copies")},
    }


def lines_of(cluster: ClusterState, health: ClusterHealth, silent: dict[str, str]) -> Iterator[str]:
    """Yield the lines of one screen."""
    yield f"Cluster {cluster.name}: {WORDS[health.level].upper()}"
    yield from _listed(health.at_risk, "!")
    yield from _listed(health.degraded, "-")
    yield f"Safe to lose another node: {'yes' if health.is_safe else 'no'}"
    yield from _listed(health.unsafe, "-")
    yield ""
    rows = [("NODE", "STATE", "HTTP ADDRESS", "COPIES", "CONNECTED TO")]
    for node in cluster.nodes:
        copies = f"{node.copies_possible} of {node.copies_wanted}" if node.copies_possible is not None else "-"
        links = ", ".join(map(str, node.connected_to)) or "-"
        rows.append((str(node.node), node.state, node.http_address or node.asked, copies, links))
    yield from _table(rows)
    yield ""
    logs = [("LOG OF", "LOG", "LEADER", "STATE", "IN SYNC", "NOT IN SYNC")]
    for log in cluster.logs:
        if log.state != CLOSED:
            of, leader = ("?" if one is None else str(one) for one in (log.node, log.leader))
            in_sync = ", ".join(map(str, log.replicas)) or "-"
            logs.append((of, log.log_id[:8], leader, log.state, in_sync, _behind(cluster, log)))
    yield from _table(logs)
    for log in cluster.logs:
        if log.batches:
            kept = f"{counted(log.batches, 'batch')} of the log of node {log.node} not done"
            yield f"{kept}: penstock batch list --nsqd-http-address {_address_of(cluster, log.leader)}"
    left_out = cluster.logs_left_out + cluster.nodes_left_out + cluster.copies_left_out
    if left_out:
        yield f"({left_out} more are not shown)"
    if silent:
        yield ""
        yield from (f"No answer from {address}: {why}" for address, why in silent.items())


def _address_of(cluster: ClusterState, number: int | None) -> str:
    return next((one.http_address or one.asked for one in cluster.nodes if one.node == number), "-")


def _behind(cluster: ClusterState, log: LogState) -> str:
    """Return the replicas of a log that are behind, and how far."""
    found = []
    for copy in cluster.copies:
        if copy.log_id == log.log_id and copy.follower not in (log.leader, *log.replicas) and copy.state != "unused":
            lag = f", {counted(copy.behind, 'byte')} behind" if copy.behind else ""
            lag += f" for {copy.lag_seconds:.0f} s" if copy.behind and copy.lag_seconds else ""
            found.append(f"{copy.follower} ({copy.state}{lag})")
    return ", ".join(found) or "-"


def _listed(reasons: Sequence[str], mark: str) -> Iterator[str]:
    for reason in reasons[:MOST_SHOWN]:
        yield f"  {mark} {reason}"
    if len(reasons) > MOST_SHOWN:
        yield f"  {mark} {len(reasons) - MOST_SHOWN} more"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
