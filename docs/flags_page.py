"""The page docs/reference/flags.md: every option of every program, from the option classes and the parsers."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from admin.options import AdminOptions
from admin.terminal.main import parser as terminal_parser
from admin.users.command import parser as users_parser
from apps import nsq_stat, nsq_tail, nsq_to_http, nsq_to_nsq, to_nsq
from apps.penstock import parser as penstock_parser
from apps.to_file.options import Options as ToFileOptions
from docs.markdown import page, table_row
from lookupd.options import LookupdOptions
from nsqd.commands.import_command import parser as import_parser
from nsqd.commands.restore_command import parser as restore_parser
from nsqd.commands.verify import parser as verify_parser
from nsqd.options import NsqdOptions
from pipeline.command_line import parser as pipeline_parser
from shared.audit.command import parser as audit_parser
from shared.options import Spec, specs
from shared.values import Duration

FEW = 3  # programs with a flag, which is described once
MANY = 4  # the same of commands
SHORT = 6  # options of a command that has a row and no table
# Options that commands have together, by the name of the group in the table of commands
CONNECTION = ("--context", "--auth-token-file", "--auth-token-command", "--tls-root-ca-file", "--tls-cert", "--tls-key")
GROUPS = {
    "connection": CONNECTION,
    "nodes": (*CONNECTION, "--lookupd-http-address", "--nsqd-http-address", "--json", "--timeout"),
    "node": (*CONNECTION, "--nsqd-http-address"),
    "selection": (
        *(
            "--queue, --tube",
            "--node",
            "--offset",
            "--id",
            "--state",
            "--count",
            "--all",
            "--grep",
            "--header",
            "--older",
        ),
        *("--buried-for", "--rate"),
    ),
    "confirmation": ("--yes", "--dry-run"),
}
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
    shared = [row for row, count in counts.items() if count >= FEW]
    parts += ["## Flags of several programs\n", "| flag | type | default | meaning | programs |\n|---|---|---|---|---|"]
    for row in shared:
        programs = ", ".join(program for program, rows in own.items() if row in rows)
        parts.append(f"{row} {programs.replace(', '.join(DAEMONS), 'the daemons')} |")
    for program, rows in own.items():
        parts += [
            f"\n## {program}\n",
            *(
                ["With the flags [of several programs](#flags-of-several-programs) that name it.\n"]
                if {*shared} & {*rows}
                else []
            ),
            "| flag | type | default | meaning |\n|---|---|---|---|",
            *(row for row in rows if row not in shared),
        ]
    parts.append(
        "\n## beanstalkd, disque-server\n\nThese programs take the options of the originals:"
        " [beanstalkd's](compatibility-beanstalkd.md), [Disque's](compatibility-disque.md#the-program-disque-server).\n"
    )
    return page([*parts, *_subcommands()])


def _subcommands() -> Iterator[str]:
    """Yield the part about the program `penstock`."""
    yield "## penstock\n\n[Commands](cli.md) says what the program `penstock` does, with examples.\n"
    commands = [one for made in PARSERS for one in _commands(made())]
    counts = Counter(row for _, _, _, rows in commands for row in rows)
    common = [row for row, count in counts.items() if count >= MANY]
    groups = {name: _rows_of(flags, common, name != "nodes") for name, flags in GROUPS.items()}
    yield "### Options of several commands\n\nThe groups *nodes* and *node* include *connection*.\n"
    yield "| group | argument | default | meaning |\n|---|---|---|---|"
    known = set[str]()
    for name, rows in [*groups.items(), ("", [row for row in common if row.startswith("| `-")])]:
        new = [row for row in rows if row not in known and (name or row.split("`")[1] not in " ".join(known))]
        yield from (f"| {name} {row}" for row in new)
        known.update(rows)
    yield "\n### Commands with few options\n\n| command | what it does | options |\n|---|---|---|"
    longer = []
    for program, usage, said, rows in commands:
        names = []
        for name, members in reversed(groups.items()):
            if set(members) <= set(rows):
                names.append(f"*{name}*")
                rows = [row for row in rows if row not in members]
        if len([row for row in rows if row not in common]) > SHORT:
            longer.append((program, usage, said, names, rows))
        else:
            cells = [_inline(row, row in common) for row in rows]
            yield table_row(f"`{usage}`", said, "; ".join([*filter(None, cells), *names]).replace("\\|", "|"))
    for program, usage, said, names, rows in longer:
        also = f" With {' and '.join(names)}." if names else ""
        yield f"\n### {program}\n\n`{usage}`: {said}{also}\n\n| argument | default | meaning |\n|---|---|---|"
        yield from (row for row in rows if not row.endswith("|  |  |"))


def _rows_of(flags: Iterable[str], rows: list[str], last: bool) -> list[str]:
    """Return the row of each flag: of several with one flag, the last one or the first one."""
    found = [[row for row in rows if re.match(rf"\| `{re.escape(flag)}[ `]", row)] for flag in flags]
    return [ones[-1 if last else 0] for ones in found]


def _inline(row: str, common: bool) -> str:
    """Return an option in a few words; "" for an argument of which nothing is known but the usage."""
    name, default, meaning = row.removeprefix("| ").removesuffix(" |").split(" | ")
    if not name.startswith("`-") and (common or not meaning):
        return ""
    shown = f"{name} ({default})" if default else name
    return f"{shown}: {meaning}" if meaning and not common else shown


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


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield name, usage, description and rows of each command of a parser that has options or arguments of its own."""
    rows, words, below = [], [parser.prog], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = list(action.choices.values())
        elif not isinstance(action, argparse._HelpAction) and action.help is not argparse.SUPPRESS:
            rows.append(_action(action))
            if not action.option_strings:
                words.append(_word(action) if action.nargs in (None, "+") else f"[{_word(action)}]")
    if rows and parser.prog != "penstock":
        said = " ".join((parser.description or "").split())
        yield parser.prog, " ".join(words), f"{said[:1].upper()}{said[1:].rstrip('.')}." if said else "", rows
    for one in below:
        yield from _commands(one)


def _word(action: argparse.Action) -> str:
    """Return the name of an argument, or of an option's value; its values, unless the help lists them."""
    values = [*map(str, action.choices or ())]
    if values and ", ".join(values) not in (action.help or ""):
        return "{" + ",".join(values) + "}"
    return action.metavar if isinstance(action.metavar, str) else action.dest.upper()


def _action(action: argparse.Action) -> str:
    name = " ".join(filter(None, [", ".join(action.option_strings), "" if action.nargs == 0 else _word(action)]))
    default = "" if action.default in (None, "", [], False, argparse.SUPPRESS) else f"`{action.default}`"
    said = re.sub(r" ?\(default: [^)]*\)", "", action.help or "") if default else action.help or ""
    return table_row(f"`{name}`", "required" if action.required and action.option_strings else default, said)
