"""The page docs/reference/flags.md: every option of every program, from the option classes and the parsers."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Container, Iterator

from admin.options import AdminOptions
from admin.terminal.main import parser as terminal_parser
from admin.users.command import _parser as users_parser
from apps import nsq_stat, nsq_tail, nsq_to_http, nsq_to_nsq, to_nsq
from apps.penstock import parser as penstock_parser
from apps.to_file.options import Options as ToFileOptions
from docs.markdown import page, table_row
from lookupd.options import LookupdOptions
from nsqd.commands.beanstalkd import USAGE
from nsqd.commands.import_command import _parser as import_parser
from nsqd.commands.restore_command import _parser as restore_parser
from nsqd.commands.verify import _parser as verify_parser
from nsqd.options import NsqdOptions
from pipeline.command_line import parser as pipeline_parser
from shared.audit.command import _parser as audit_parser
from shared.options import Spec, specs
from shared.values import Duration

FEW = 3  # programs with a flag, which is described once
MANY = 4  # the same of commands
SHORT = 6  # options of a command that has a row and no table
CONNECTION = ("`--auth-token-file FILE`", "`--tls-root-ca-file FILE`", "`--tls-cert FILE`", "`--tls-key FILE`")
OPTIONS = {
    "nsqd": NsqdOptions,
    "nsqlookupd": LookupdOptions,
    "nsqadmin": AdminOptions,
    "nsq_tail": nsq_tail.Options,
    "to_nsq": to_nsq.Options,
    "nsq_to_nsq": nsq_to_nsq.Options,
    "nsq_to_http": nsq_to_http.Options,
    "nsq_stat": nsq_stat.Options,
    "nsq_to_file": ToFileOptions,
}
DAEMONS = ("nsqd", "nsqlookupd", "nsqadmin")
PARSERS = (
    terminal_parser,
    penstock_parser,
    import_parser,
    restore_parser,
    verify_parser,
    users_parser,
    audit_parser,
    pipeline_parser,
)
TYPES = {bool: "switch", int: "integer", float: "number", str: "text", Duration: "duration"}


def flags() -> str:
    """Return the page of all options."""
    parts = [
        "# Flags\n",
        "Every option of every program. A flag takes one dash or two. A list may be given several times. Durations are in\n"
        "Go's syntax: `500ms`, `10s`, `24h`. Each option of a daemon is also a key of its configuration file and an\n"
        "environment variable; see [Configuration](configuration.md).\n",
    ]
    own = {
        program: [table_row(f"`-{one.flag}`", _type(one), _default(one), one.help) for one in specs(options, program)]
        for program, options in OPTIONS.items()
    }
    counts = Counter(row for rows in own.values() for row in rows)
    shared = {row for row, count in counts.items() if count >= FEW}
    head = "| flag | type | default | meaning |\n|---|---|---|---|"
    parts += ["## Flags of several programs\n", head, *(row for row in counts if row in shared), ""]
    for program, rows in own.items():
        parts += [
            f"## {program}\n",
            *(f"{line}\n" for line in _also(rows, shared)),
            head,
            *(row for row in rows if row not in shared),
            "",
        ]
    parts.append(f"## beanstalkd\n\nThese are the flags of beanstalkd.\n\n```text\n{USAGE.strip()}\n```\n")
    return page([*parts, *_subcommands()])


def _subcommands() -> Iterator[str]:
    """Yield the part about the program `penstock`."""
    yield ("## penstock\n\n[Commands](cli.md) says what the program `penstock` does, with examples.\n")
    commands = [one for made in PARSERS for one in _commands(made())]
    counts = Counter(row for _, _, rows in commands for row in rows)
    by_name = {row.split(" | ")[0]: row for row, count in reversed(counts.most_common()) if count >= MANY}
    shared = sorted(by_name.values(), key=list(counts).index)
    head = "| argument | default | meaning |\n|---|---|---|"
    yield from ("### Options of several commands\n", head, *shared, "")
    yield "### Commands with few options\n\n| command | what it does | options |\n|---|---|---|"
    longer = []
    for program, said, rows in commands:
        own = [row for row in rows if row not in shared]
        if len(own) > SHORT:
            longer.append((program, said, rows, own))
        else:
            cells = [row.removeprefix("| ").removesuffix(" |").split(" | ") for row in own]
            options = [f"{name}{f' ({default})' if default else ''}: {meaning}" for name, default, meaning in cells]
            yield table_row(f"`{program}`", said, "; ".join([*options, *_also(rows, shared)]).replace("\\|", "|"))
    for program, said, rows, own in longer:
        yield f"\n### {program}\n\n{' '.join([said, *_also(rows, shared)]).rstrip()}\n\n{head}"
        yield from own


def _also(rows: list[str], shared: Container[str]) -> Iterator[str]:
    """Yield a line with the names of a program's options that are described once for several programs."""
    names = [row.split(" | ")[0].removeprefix("| ") for row in rows if row in shared]
    if set(CONNECTION) <= set(names):
        names = [
            *(name for name in names if name not in CONNECTION),
            "the options of a connection (`--auth-token-file`, `--tls-...`)",
        ]
    if names:
        yield f"Also: {', '.join(names)}."


def _type(one: Spec) -> str:
    kind = str(one.type)
    if kind.startswith("tuple"):
        return "list of numbers" if "float" in kind else "list"
    return TYPES[one.type]


def _default(one: Spec) -> str:
    if one.default in ("", (), None):
        return ""
    if one.type is Duration:
        return f"`{_duration(one.default)}`"
    if isinstance(one.default, bool):
        return "on" if one.default else "off"
    if isinstance(one.default, tuple):
        return f"`{','.join(map(str, one.default))}`"
    text = str(one.default)
    return f"`{json.dumps(text) if text != text.strip() else text}`"


def _duration(nanoseconds: int) -> str:
    for size, unit in ((3600 * 10**9, "h"), (60 * 10**9, "m"), (10**9, "s"), (10**6, "ms")):
        if nanoseconds and nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return str(nanoseconds)


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, description and rows of each command of a parser that has options or arguments of its own."""
    rows, below = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = list(action.choices.values())
        elif not isinstance(action, argparse._HelpAction) and action.help is not argparse.SUPPRESS:
            rows.append(_action(action))
    if rows and parser.prog != "penstock":
        said = " ".join((parser.description or "").split())
        yield parser.prog, f"{said[:1].upper()}{said[1:].rstrip('.')}." if said else "", rows
    for one in below:
        yield from _commands(one)


def _action(action: argparse.Action) -> str:
    word = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    word = "" if action.nargs == 0 else "{" + ",".join(map(str, action.choices)) + "}" if action.choices else word
    name = ", ".join(action.option_strings)
    default = "" if action.default in (None, "", [], False, argparse.SUPPRESS) else f"`{action.default}`"
    said = re.sub(r" ?\(default: [^)]*\)", "", action.help or "") if default else action.help or ""
    return table_row(
        f"`{f'{name} {word}'.strip() if name else word}`", "required" if action.required and name else default, said
    )
