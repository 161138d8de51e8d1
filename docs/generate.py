"""Write docs/reference from the declarations in the code: `make reference`. A test holds that the pages are up to date.

* flags.md: every option of every program, from the option classes and the parsers.
* http-routes.md: every HTTP route, from the route tables, route_table.py and the docstrings of the handlers' modules.
* metrics.md: every metric, as an nsqd and an nsqlookupd answer /metrics.
* alarms.md: the alarm rules of nsqadmin.
* cli.md: the commands of penstock, with examples that are executed now (docs/cli_page.py).
* deploy/nsqadmin-alerts.yaml: rules of Prometheus for the alarms of nsqadmin.
* deploy/config: an example of a configuration file for each daemon.
* deploy/grafana/dashboards: dashboards of Grafana, from dashboards.py.

errors.md is written by hand; a test holds that it names every error in the code.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import yaml

from admin.alarms.rules import RULES, Rule, Severity
from admin.options import AdminOptions
from admin.terminal.main import parser as terminal_parser
from admin.users.command import _parser as users_parser
from admin.users.roles import NEEDED
from apps import nsq_stat, nsq_tail, nsq_to_http, nsq_to_nsq, to_nsq
from apps.passthrough import APPLIED
from apps.penstock import parser as penstock_parser
from apps.to_file.options import Options as ToFileOptions
from docs.dashboards import DASHBOARDS
from docs.route_table import NSQADMIN
from docs.scraped_metrics import metric_rows
from lookupd.http import Handlers
from lookupd.options import LookupdOptions
from nsqd.commands.beanstalkd import USAGE
from nsqd.commands.import_command import _parser as import_parser
from nsqd.commands.restore_command import _parser as restore_parser
from nsqd.commands.verify import _parser as verify_parser
from nsqd.http import topic_config
from nsqd.http.routes import routes as nsqd_routes
from nsqd.options import NsqdOptions
from nsqd.protocols.nsq.identify import FIELDS, Field
from penstock.sansio.settings import Settings
from pipeline.command_line import parser as pipeline_parser
from shared.audit.command import _parser as audit_parser
from shared.http.argument import REQUIRED, Argument
from shared.http.route import Need, Route
from shared.options import Spec, specs
from shared.print_config import example
from shared.topic_config import SETTINGS
from shared.values import Duration

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs/reference"
ALERTS = ROOT / "deploy/nsqadmin-alerts.yaml"
EXAMPLES = ROOT / "deploy/config"
GRAFANA = ROOT / "deploy/grafana/dashboards"
MADE = "<!-- `make reference` writes this page from the code. -->\n"
FEW = 3  # programs with a flag, which is described once
MANY = 4  # the same of commands
SHORT = 6  # options of a command that has a row and no table
CONNECTION = ("`--auth-token-file FILE`", "`--tls-root-ca-file FILE`", "`--tls-cert FILE`", "`--tls-key FILE`")

# flags.md


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
_TYPES = {bool: "switch", int: "integer", float: "number", str: "text", Duration: "duration"}


def flags() -> str:
    """Return the page of all options."""
    parts = [
        "# Flags\n",
        "Every option of every program. A flag takes one dash or two. A list may be given several times. Durations are in\n"
        "Go's syntax: `500ms`, `10s`, `24h`. Each option of a daemon is also a key of its configuration file and an\n"
        "environment variable; see [Configuration](configuration.md).\n",
    ]
    own = {
        program: [_row(f"`-{one.flag}`", _type(one), _default(one), one.help) for one in specs(options, program)]
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
    return _page([*parts, *_subcommands()])


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
            yield _row(f"`{program}`", said, "; ".join([*options, *_also(rows, shared)]).replace("\\|", "|"))
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
    return _TYPES[one.type]


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
    return _row(
        f"`{f'{name} {word}'.strip() if name else word}`", "required" if action.required and name else default, said
    )


# http-routes.md


def routes() -> str:
    """Return the page of all HTTP routes."""
    node = MagicMock(options=dataclasses.replace(NsqdOptions(), debug_routes=True))
    nsqd, lookupd = nsqd_routes(node), Handlers(*[MagicMock()] * 5).routes()
    parts = [
        "# HTTP routes\n",
        "Arguments are in the query, unless the table says otherwise; `?` marks those that may be left out. A route needs a\n"
        "right where there is an auth file. Errors are\n"
        'JSON: `{"message":"TEXT"}`. [Errors](errors.md) lists the texts.\n',
        "## nsqd\n",
    ]
    parts += _table(nsqd)
    notes: dict[str, list[str]] = {}
    for route in nsqd:
        module = sys.modules[route.handler.__module__]
        rest = (inspect.getdoc(module) or "").partition("\n\n")[2]
        if ("\n    " in rest or module is topic_config) and route.path not in notes.setdefault(rest, []):
            notes[rest].append(route.path)
        if module is topic_config:
            settings = rest
    for rest, paths in notes.items():
        parts.append(f"### {', '.join(paths) if len(paths) < 4 else _common(paths)}\n\n{_markdown(rest)}")
        if rest == settings:
            parts += ["| setting | a value is | what it does |\n|---|---|---|"]
            parts += [*(_row(f"`{name}`", one.expected, one.about) for name, one in SETTINGS.items()), ""]
    parts += ["## nsqlookupd\n", *_table(lookupd)]
    return _page([*parts, *_routes_of_nsqadmin(), ""])


def _routes_of_nsqadmin() -> list[str]:
    api = [
        tuple(route.split(" "))
        for route in NEEDED
        if "/api" in route or route.split("/")[1].partition("/")[0] in ("ping", "render", "config")
    ]
    known, listed = {" ".join(route) for route in api}, set(NSQADMIN)
    if known != listed:
        raise SystemExit(f"docs/route_table.py: missing {sorted(known - listed)}, gone {sorted(listed - known)}")
    parts = [
        "## nsqadmin\n\nRoutes for programs. A request needs a user who may do what the column says;"
        " without `-auth-file`, every user may do everything.\n",
        "| route | arguments | needs | what it does |\n|---|---|---|---|",
    ]
    for method, path in api:
        arguments, what = NSQADMIN[f"{method} {path}"]
        parts.append(_row(f"`{method} {path}`", _words(arguments), NEEDED[f"{method} {path}"].words, what))
    return parts


def _common(paths: list[str]) -> str:
    """Return the beginnings of the paths, as a heading."""
    return ", ".join(
        dict.fromkeys(path if path.count("/") < 2 else f"{path[: path.rindex('/')]}/..." for path in paths)
    )


def _table(routes: Iterable[Route]) -> Iterator[str]:
    yield "| route | arguments | needs | what it does |\n|---|---|---|---|"
    for cells, alike in groupby(routes, lambda one: (_arguments(one.arguments), _need(one.need), one.does)):
        yield _row(", ".join(f"`{one.key}`" for one in alike), *cells)
    yield ""


def _need(need: Need) -> str:
    """Return the right that a route needs, in words."""
    return need.verb.name.lower() if need.verb is not None else "" if need.is_open else "any"


def _arguments(declared: Iterable[Argument]) -> str:
    """Return the arguments of a route: their names, which of them may be left out, and what values must be."""
    return ", ".join(
        f"`{one.name}`{'' if one.default is REQUIRED else '?'}{f' ({one.expected})' if one.expected else ''}"
        for one in declared
    )


def _words(arguments: str) -> str:
    """Return the arguments with code marks around their names."""
    rest = arguments.removeprefix("JSON: ")
    if not rest:
        return ""
    marked = ", ".join(
        " ".join(
            word if word in ("or", "and", "repeated") else f"`{word.strip('?')}`{'?' if word[0] == '?' else ''}"
            for word in one.split(" ")
        )
        for one in rest.split(", ")
    )
    return f"JSON: {marked}" if rest != arguments else marked


def _markdown(text: str) -> str:
    """Return a docstring as Markdown: its indented parts become blocks of text, and each other paragraph one line."""
    blocks: list[str] = []
    useless = re.compile(
        r" \(\w+\.py\)|^    (?:GET|POST) +/\S+(?: {2,}(?!\{).*)?$(?!\n {8})", re.MULTILINE
    )  # the last: the table has that
    for paragraph in useless.sub("", text).split("\n\n"):
        for inside, lines in groupby(filter(str.strip, paragraph.splitlines()), lambda line: line.startswith("    ")):
            if not inside:
                blocks.append(" ".join(map(str.strip, lines)).replace("<", "&lt;").replace(" * ", "\n* "))
            elif blocks and blocks[-1].endswith("```"):
                blocks[-1] = "\n".join([blocks[-1].removesuffix("```").rstrip(), *(line[4:] for line in lines), "```"])
            else:
                blocks.append("\n".join(["```text", *(line[4:] for line in lines), "```"]))
    return "\n\n".join(blocks) + "\n"


# metrics.md


def metrics() -> str:
    """Return the page of all metrics, as the daemons answer them."""
    parts = [
        "# Metrics\n",
        "`GET /metrics` of nsqd and nsqlookupd answers these metrics in Prometheus's text format. A series by topic, channel,\n"
        "tube or cursor exists for the first 200 of each, by backlog; the others are summed up as `(other)`. Only a node of a\n"
        "cluster has `nsqd_cluster_*`, only one with an audit `nsqd_audit_*`, only one with `-otel-endpoint` `nsqd_spans_*`.\n"
        "Only a node with an auth file has `nsqd_identity_*`, for the 50 identities with the most messages; the others are\n"
        "summed up as `(other)`. Only a daemon with certificates has series of `*_certificate_expiry_seconds`; nsqadmin has\n"
        "that metric, too.\n",
    ]
    for program, rows in metric_rows().items():
        parts.append(f"## {program}\n\n| metric | type | labels | meaning |\n|---|---|---|---|")
        parts += [_row(*row) for row in rows]
        parts.append("")
    return _page(parts)


# all


def _row(*cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def _page(parts: Iterable[str]) -> str:
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{MADE}{rest}"


# client-settings.md


def client_settings() -> str:
    """Return the page of what a client may set: the fields of IDENTIFY, and the settings of the Python client."""
    types = _TYPES | {bool: "boolean"}
    return _page([
        "# Client settings\n",
        "The fields that any client of NSQ may send in IDENTIFY, and the settings of the Python client.\n",
        "## Fields of IDENTIFY\n",
        "A field that is missing, or 0, has its default. nsqd compares names without their case, ignores others, and answers\n"
        "`E_BAD_BODY` to a value of a wrong type or beyond a bound.\n"
        "[The protocol](../contributing/design/nsq-protocol.md#identify) has the rest.\n",
        "| field | type | default | bounds | effect |\n|---|---|---|---|---|",
        *(_row(f"`{name}`", types[one.kind], one.default, _bounds(one), one.about) for name, one in FIELDS.items()),
        "\n## Settings of the Python client\n",
        "Fields of `Settings` in `penstock.client` and `penstock.aio`. The names are go-nsq's with the unit; `-consumer-opt`\n"
        "and `-producer-opt` of the [tools](tools.md#options-of-clients) take the names in the second column. A number that\n"
        "IDENTIFY carries has the bounds above; 0 leaves it to nsqd.\n",
        "| setting | `-consumer-opt` | type | default | effect |\n|---|---|---|---|---|",
        *(_row(*_setting(one), types[one.type], *_effect(one)) for one in dataclasses.fields(Settings)),
        "",
    ])  # fmt: skip


def _setting(field: dataclasses.Field[Any]) -> tuple[str, str]:
    """Return the name of a setting of the Python client, and its names as an option of the tools."""
    return f"`{field.name}`", ", ".join(f"`{option}`" for option, (name, _) in APPLIED.items() if name == field.name)


def _effect(field: dataclasses.Field[Any]) -> tuple[str, str]:
    """Return the default of a setting, and its effect: the comment at its line."""
    comment = re.search(rf"^    {field.name}: .*?  # (.*)$", inspect.getsource(Settings), re.MULTILINE)
    if comment is None:
        raise SystemExit(f"penstock/sansio/settings.py: {field.name} needs a comment")
    if field.default is dataclasses.MISSING:
        return "of the machine", comment[1]
    return f"`{field.default}`" if field.default != "" else "", comment[1]


def _bounds(field: Field) -> str:
    """Return the bounds of a field of IDENTIFY in words: a setting has the name of its flag."""
    flags = {"most_copies": "the nodes of the cluster"}
    words = [
        f"{one:,}" if isinstance(one, int) else flags.get(one, f"`-{one.replace('_', '-')}`")
        for one in (field.least, field.most)
    ]
    return " to ".join(words) if field.most else ""


# deploy/nsqadmin-alerts.yaml


def nsqadmin_alerts() -> str:
    """Return Prometheus's rules for the alarms of nsqadmin."""
    words = "# `make reference` writes this file from the alarm rules of nsqadmin. Scrape its /metrics.\n"
    rules = [_prometheus_rule(rule) for rule in RULES if rule.severity is not Severity.INFO]
    return words + yaml.safe_dump({"groups": [{"name": "nsqadmin", "rules": rules}]}, sort_keys=False, width=120)


def _prometheus_rule(rule: Rule) -> dict[str, object]:
    return {
        "alert": "Nsqadmin" + "".join(map(str.capitalize, rule.name.split("-"))),
        "expr": f'max by (cluster) (nsqadmin_alarm_subjects{{rule="{rule.name}"}}) > 0',
        "labels": {"severity": "page" if rule.severity is Severity.CRITICAL else "ticket"},
        "annotations": {
            "summary": f"{rule.title}: {{{{ $value }}}} in {{{{ $labels.cluster }}}}",
            "description": f"{rule.meaning} {rule.action}",
            "runbook": f"docs/{rule.runbook}",
        },
    }


def alarms() -> str:
    """Return the page of nsqadmin's alarm rules and their thresholds."""
    lines = [
        "# Alarms of nsqadmin\n",
        "The rules that nsqadmin checks ([how to set thresholds, snooze and be notified](../how-to/use-nsqadmin.md#alarms)).\n",
        "| alarm | meaning | action | thresholds |\n|---|---|---|---|",
    ]
    for rule in RULES:
        thresholds = [
            f"`{rule.name}.{one.name}` ({one.default:g} {one.unit}): {one.meaning[:1].lower()}{one.meaning[1:]}"
            for one in rule.thresholds
        ]
        action = f"{rule.action} [{rule.runbook.partition('#')[0].rpartition('/')[2]}](../{rule.runbook})"
        lines.append(
            _row(
                f"`{rule.name}`", f"{rule.title} ({rule.severity.word}). {rule.meaning}", action, "; ".join(thresholds)
            )
        )
    return _page(lines)


def cli() -> str:
    """Return the page of the commands of `penstock`, with executed examples."""
    from docs.cli_page import page

    return page(MADE)


PAGES = {
    "flags.md": flags,
    "http-routes.md": routes,
    "metrics.md": metrics,
    "alarms.md": alarms,
    "cli.md": cli,
    "client-settings.md": client_settings,
}


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page())
    ALERTS.write_text(nsqadmin_alerts())
    for daemon in DAEMONS:
        (EXAMPLES / f"{daemon}.toml").write_text(example(OPTIONS[daemon], daemon))
    for dashboard in DASHBOARDS:
        (GRAFANA / f"{dashboard.name}.json").write_text(dashboard.as_json())


if __name__ == "__main__":
    main()
