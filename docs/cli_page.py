"""The page docs/reference/cli.md: the commands of `penstock`, with examples that are executed when the page is written.

The examples run in this process, on two nodes with virtual time (tests/local_node.py), so their output is always the same.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from typing import Any

import pytest

from admin.terminal import doctor, health, listing
from admin.terminal.main import NAMES
from admin.terminal.main import parser as terminal_parser
from apps.penstock import parser as penstock_parser
from docs.cli_session import SET_UP, TEXT
from docs.markdown import page
from shared.terminal.commands import EXIT_CODES
from shared.terminal.context import SETTINGS, variable
from tests.admin.terminal.program import Terminal, post
from tests.daemons import Conversation, sized
from tests.local_node import LocalNode

CLIENT = "CLIENT"  # in an example: the address of the consumer
WIDTH = 130  # characters of a line of output that is not cut
LINES = 14  # of an output that is not cut
SEE, ACT, DIAGNOSE = "See", "Act", "Diagnose"
# Each example is a command line; the first word is the command.
EXAMPLES: dict[str, tuple[str, ...]] = {
    SEE: (
        "status", "status --check", "topics", "topics --sort depth -n 1 --json", "channels", "tubes", "queues pictures --json",
        "nodes", "clients", "producers", "alarms", "top -n 1", "messages orders mail -n 2",
        "show orders mail 0 --node 127.0.0.1:4151", "peek orders mail -n 2",
    ),
    ACT: (
        "create invoices/worker", "config orders retention=24h", "pause orders/mail --for 10m",
        "unpause orders/mail", "bury orders mail --state ready --count 2",
        "redrive orders mail --state buried --all --dry-run", "kick orders mail --state buried --all --dry-run",
        "kick orders mail --state buried --all --yes",
        "requeue orders mail --offset 0 --node 127.0.0.1:4151 --delay 1m",
        "move orders mail --state ready --to archive",
        "finish orders mail --state ready --count 1",
        "disconnect orders mail CLIENT --yes", "empty orders/mail --dry-run", "delete orders --yes",
        "drain 127.0.0.1:4251 --yes", "undrain 127.0.0.1:4251", "request GET /ping",
    ),
    DIAGNOSE: ("doctor", "support-bundle state.tar.gz"),
}  # fmt: skip
HEAD = """\
# Commands

What `penstock` can do from a terminal. `penstock COMMAND --help` has examples, and [flags](flags.md#penstock) all options. The
commands under See and Act ask all nodes at once; a node that gives no answer is named on standard error.

## Addresses and credentials

`penstock context add NAME` saves them, and `penstock context use NAME` chooses. Without a context, commands find the set that
`penstock up` runs on this machine. Each setting is a flag, an environment variable, or a key of the context:

| flag | variable | meaning |
|---|---|---|
SETTINGS

`--context` and `PENSTOCK_CONTEXT` name a context. Addresses that are given do not get the credentials of the current one. With
`--auth-token-command "secret-tool lookup service penstock"` the token is in a keyring. A node that is lost is reported only if
the context names it. The file is `~/.config/penstock/contexts.toml`, and only its owner may read it.

## Output

Tables fit the terminal, and are not cut in a pipe. `--json` prints an object for each row, on a line, in ASCII; its keys stay.
Colors are for terminals, unless `NO_COLOR` is set. On a terminal control characters are escaped, also those of bodies, which a
pipe or file gets as they are. What drops messages asks first, unless `--yes` is given; `--dry-run` only says what
would be done.

| exit code | meaning |
|---|---|
CODES

`status`, `alarms`, `doctor` and `cluster status`: 0 all is well, 1 a warning, 2 critical, 3 no node answers.

For completion: `penstock completion bash > ~/.local/share/bash-completion/completions/penstock`; `--help` has zsh and fish.
"""


def cli() -> str:
    """Return the page of the commands of `penstock`, with executed examples."""
    return page([_head(), *_executed(), *_session()])


def _head() -> str:
    settings = [
        f"| `--{name.replace('_', '-')}` | `{variable(name)}` | {one.metadata['help']} |"
        for name, one in SETTINGS.items()
    ]
    codes = [f"| {int(code)} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return HEAD.replace("SETTINGS", "\n".join(settings)).replace("CODES", "\n".join(codes))


def _executed() -> Iterator[str]:
    """Yield the parts with executed examples: a table of the commands, and one session in which all are used."""
    about = _abouts(terminal_parser())
    with _terminal() as terminal:
        for group, lines in EXAMPLES.items():
            yield f"## {group}\n\n| command | what it does |\n|---|---|"
            yield from (f"| `{name}` | {about[name]} |" for name in dict.fromkeys(line.split()[0] for line in lines))
            yield "\n```console\n" + "\n".join([_run(terminal, line) for line in lines]) + "```\n"


def _session() -> Iterator[str]:
    """Yield the parts of the commands that need processes, with the examples of cli_session.txt."""
    about = _abouts(penstock_parser())
    first, *others = TEXT.read_text().split("\n# ")
    started = {name: lines for name, _, lines in (part.partition("\n\n") for part in others)}
    started[SET_UP] = f"{first}\n{started[SET_UP]}"
    for group, lines in started.items():
        names = dict.fromkeys(
            re.findall(r"\bpenstock ([a-z-]+)", "\n".join(re.findall(r"^\$ .*", lines, re.MULTILINE)))
        )
        yield f"## {group}\n\n| command | what it does |\n|---|---|"
        yield from (f"| `{name}` | {about[name]} |" for name in names if name not in NAMES)
        yield f"\n```console\n{lines.rstrip()}\n```\n"


def _abouts(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the description of each command, with a capital letter."""
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return {
        str(one.dest): f"{(one.help or '')[:1].upper()}{(one.help or '')[1:]}".replace("|", "\\|")
        for one in commands._choices_actions
    }


def _run(terminal: Terminal, line: str) -> str:
    """Return a command and its output, standard error last, and its exit code if it is not 0."""
    words = line.split()
    if CLIENT in words:
        [client] = terminal.rows("clients", "orders")
        words[words.index(CLIENT)] = client["remote_address"]
    code, out, error = terminal(*words)
    lines = [*out.splitlines(), *error.splitlines(), *([f"(exit code {code})"] if code else [])]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], f"... ({len(lines) - LINES + 1} more)"]
    printed = "".join(f"{one}\n" if len(one) <= WIDTH else f"{one[: WIDTH - 3]}...\n" for one in lines)
    return f"$ penstock {' '.join(words)}\n{printed}"


class _Output:
    """Captures what is printed, as pytest's fixture does."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))

    def readouterr(self) -> tuple[bytes, bytes]:
        """Return the output and the errors since the last call."""
        streams: Any = sys.stdout, sys.stderr
        for stream in streams:
            stream.flush()
        found = tuple(stream.buffer.getvalue() for stream in streams)
        self._begin()
        return found


@contextmanager
def _terminal() -> Iterator[Terminal]:
    """Two nodes with some messages and jobs, and what is printed about them."""
    before = sys.stdout, sys.stderr
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory, chdir(directory):
        patch.setattr(doctor, "machine", lambda *limits: [])
        patch.setattr(health, "_ms", lambda value: "1.3 ms")  # syncs are measured by a real clock
        patch.setattr(
            listing, "_age", lambda oldest: 4.0 if oldest else None
        )  # the nodes' clocks are not the machine's
        patch.setattr(doctor, "_unreachable", _all_reachable)
        patch.setitem(os.environ, "COLUMNS", str(WIDTH))
        nodes = [LocalNode("-node-id=0"), LocalNode("-node-id=1")]
        for node, bodies in zip(nodes, ((b'{"id": 17}', b'{"id": 18}', b"\xff\xfe"), (b'{"id": 19}',)), strict=True):
            post(node, "/topic/create", topic="orders", retention="1h")
            post(node, "/channel/create", topic="orders", channel="mail")
            for body in bodies:
                post(node, "/pub", body, topic="orders")
        jobs = nodes[0].connect("BEANSTALK")
        jobs.sendall(b"use pictures\r\nput 0 0 60 9\r\nresize 17\r\n")
        sent = b"  V2SUB orders mail\n", b"  V2PUB audit\n" + sized(b"x")
        connections = [Conversation(node, data) for node, data in zip(nodes, sent, strict=True)]  # type: ignore[arg-type]
        assert [one.frame() for one in connections] == [(0, b"OK")] * 2
        nodes[0].advance(1_000_000_000)
        try:
            yield Terminal(patch, _Output(), nodes)  # type: ignore[arg-type]
        finally:
            sys.stdout, sys.stderr = before
            for one in connections:
                one.close()


async def _all_reachable(producers: object) -> list[doctor.Finding]:
    return []
