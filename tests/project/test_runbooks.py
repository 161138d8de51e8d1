"""The runbooks are complete: each line at WARNING or above, each refusal to start and each alert has a row.

A log line is in the documents in the first column of a table, or as an indented line such as
`    ERROR: LOG: cannot look at the disk: …`, where `…` stands for what varies. It may end early in `…`. A call such as
`log.critical("%s", error)` has no words of its own: the texts of the errors in STOPS stand for it.
"""

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import yaml

from admin.terminal.main import NAMES
from docs.flags_page import OPTIONS, PARSERS, penstock_parser, terminal_parser
from shared.options import specs
from tests.cases import each
from tests.daemons import ROOT
from tests.declared_routes import LOOKUPD, NSQD
from tests.project.code import PACKAGES, trees
from tests.project.test_citations import anchors

PAGES = [
    path
    for part in ("how-to", "troubleshooting", "reference", "tutorials")
    for path in (ROOT / "docs" / part).glob("*.md")
]
GENERATED = ("flags.md", "http-routes.md", "metrics.md", "alarms.md")

LEVELS = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR", "critical": "FATAL"}
LOGGERS = ("log", "logger")
STOPS = ("DirectoryError", "LockError", "LogError", "DataImportError", "QueueError", "ListenError", "TlsError")
STOPS += ("TooFewFilesError",)
VARIES = "…"
_DIRECTIVE = re.compile(r"%(?:\([a-z]+\))?[-+ #0]*\d*(?:\.\d+)?[a-z]")
_QUOTED = re.compile(r"^    (WARNING|ERROR|FATAL): (.+)$|`(WARNING|ERROR|FATAL): ([^`\n]+)`(?=<br>| \|)", re.MULTILINE)
_LETTERS = 3  # a line of fewer letters than this says nothing of its own, such as "%s: %s"
_WORDS = 12  # a text of at most this many letters, such as "LOG: …", matches only itself, as it would match most lines


@dataclass(frozen=True, slots=True)
class Line:
    """A text that the code can log, with `…` for each part that varies."""

    level: str  # "" for the text of an error, which stands within a line
    text: str
    at: str  # file and line in the code

    def is_quoted_by(self, level: str, quoted: str) -> bool:
        """Return True if an entry's line shows this one."""
        if not self.level:
            return _pattern(self.text).search(quoted) is not None
        if level != self.level:
            return False
        if min(_letters(self.text), _letters(quoted)) <= _WORDS:
            return quoted == self.text
        begins = quoted.endswith(VARIES) and self.text.startswith(quoted.removesuffix(VARIES))
        return begins or _pattern(self.text).fullmatch(quoted) is not None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in text.split(VARIES)))


def collected(tree: ast.Module, file: str) -> Iterator[Line]:
    """Yield the lines at WARNING or above in a module, and the texts of the errors that stop a daemon."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.ClassDef) and scope.name in STOPS:
            yield from (Line("", text, f"{file}:{scope.lineno}") for text in _own_texts(scope))
        if not isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        calls = [call for call in _calls(scope) if _level(call) is not None or _name(call.func) in STOPS]
        names = _assigned(scope) if calls else {}
        for call in calls:
            level = _level(call)
            texts = _texts(call.args[0], names) if call.args else []
            if level is None:
                level, texts = "", [VARIES.join(_texts_of_all(call, names))]
            yield from (Line(level, text, f"{file}:{call.lineno}") for text in texts if _letters(text) >= _LETTERS)


def logged_at_info(tree: ast.Module) -> Iterator[str]:
    """Yield the texts that a module logs at INFO, with `…` for each part that varies."""
    for call in ast.walk(tree):
        match call:
            case ast.Call(func=ast.Attribute(value=logger, attr="info"), args=[text, *_]) if _name(logger) in LOGGERS:
                yield from (text for text in _texts(text, {}) if _letters(text) >= _LETTERS)


def _own_texts(error: ast.ClassDef) -> Iterator[str]:
    """Yield the texts that an error makes of its arguments, in `super().__init__`."""
    for node in ast.walk(error):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            yield from (text for argument in node.args for text in _texts(argument, {}))


def _level(call: ast.Call) -> str | None:
    """Return the level at which the call logs; None if it does not log at WARNING or above."""
    function = call.func
    if isinstance(function, ast.Attribute) and _name(function.value) in LOGGERS:
        return LEVELS.get(function.attr)
    return None


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _calls(scope: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of a function or module, without those of the functions in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls(child)


def _assigned(scope: ast.AST) -> dict[str, list[str]]:
    """Return the texts that each variable of a scope may have."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).extend(_texts(node.value, {}))
    return found


def _texts(node: ast.expr, names: dict[str, list[str]]) -> list[str]:
    """Return the texts that an expression may have, `…` for what varies."""
    match node:
        case ast.Constant(value=str(text)):
            return [_DIRECTIVE.sub(VARIES, text)]
        case ast.JoinedStr(values=parts):
            return ["".join(part.value if isinstance(part, ast.Constant) else VARIES for part in parts)]  # type: ignore[misc]
        case ast.IfExp(body=one, orelse=other):
            return [*_texts(one, names), *_texts(other, names)]
        case ast.Name(id=name) if name in names:
            return names[name]
        case _:
            return [VARIES]


def _texts_of_all(call: ast.Call, names: dict[str, list[str]]) -> Iterator[str]:
    """Yield a text for each argument of an error."""
    for argument in call.args:
        yield from _texts(argument, names)


@cache
def _letters(text: str) -> int:
    return sum(character.isalpha() for character in text)


def quoted(pages: Iterable[str]) -> list[tuple[str, str]]:
    """Return level and text of each line that the pages show."""
    found = [match.groups() for page in pages for match in _QUOTED.finditer(page)]
    return [(level or in_table, (text or cell).replace("\\|", "|")) for level, text, in_table, cell in found]


def missing(lines: Iterable[Line], entries: list[tuple[str, str]]) -> list[str]:
    """Return the lines of the code that no entry shows."""
    return [
        f"{line.at}: {line.level} {line.text}"
        for line in lines
        if not any(line.is_quoted_by(level, text) for level, text in entries)
    ]


def stale(lines: list[Line], entries: list[tuple[str, str]]) -> list[str]:
    """Return the entries that show no line of the code."""
    return [f"{level}: {text}" for level, text in entries if not any(line.is_quoted_by(level, text) for line in lines)]


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    pattern = rf"\.({'|'.join(LEVELS)})\(|{'|'.join(STOPS)}"
    return [line for path, tree in trees(PACKAGES, pattern) for line in collected(tree, path)]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(PAGES) if path.name not in GENERATED}


def test_every_line_has_an_entry_and_every_entry_shows_a_line(lines: list[Line], pages: dict[str, str]) -> None:
    assert len(lines) > 80
    assert missing(lines, quoted(pages.values())) == []
    assert stale(lines, quoted(pages.values())) == []


def test_a_line_at_info_that_a_page_quotes_is_logged(pages: dict[str, str]) -> None:
    known = [_pattern(text) for _, tree in trees(PACKAGES, r"\.info\(") for text in logged_at_info(tree)]
    named = [text for page in pages.values() for text in re.findall(r"`([A-Z]+: [^`]+)`\s+at\s+INFO", page)]
    assert len(named) > 2
    assert [text for text in named if not any(line.fullmatch(text) for line in known)] == []


def test_every_entry_says_what_it_means_and_what_to_do(pages: dict[str, str]) -> None:
    rows = re.findall(r"^\| (`.*)\|$", pages["log-messages.md"], re.MULTILINE)
    rows += re.findall(r"^\| (`\w+` .*)\|$", pages["monitor.md"].partition("\n## Alerts\n")[2], re.MULTILINE)
    assert len(rows) > 100
    assert [row for row in rows if len([cell for cell in re.split(r"(?<!\\)\|", row) if cell.strip()]) != 3] == []


# Alerts


def alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


def test_every_alert_has_a_row_and_every_row_an_alert(pages: dict[str, str]) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", pages["monitor.md"], re.MULTILINE)
    assert sorted(rows) == sorted(rule["alert"] for rule in alerts())


def metrics(expression: str) -> set[str]:
    """Return the names of our metrics in an expression of Prometheus, as the code declares them."""
    names = set(re.findall(r"\bnsq(?:d|lookupd)_\w+", expression))
    return {re.sub(r"_(?:total|bucket|count|sum)$", "", name) for name in names}


METRICS = ("nsqd/http/metrics.py", "nsqd/http/cluster_metrics.py", "lookupd/metrics.py")


def declared() -> str:
    return "".join((ROOT / file).read_text() for file in METRICS)


@each("rule", alerts())
def test_an_alert_is_complete_and_uses_metrics_that_exist(rule: dict[str, Any]) -> None:
    assert {"alert", "expr", "labels", "annotations"} <= set(rule)
    assert rule["labels"]["severity"] in ("page", "ticket")
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert not anchor or anchor in anchors((ROOT / page).read_text())
    code = declared()
    for name in metrics(rule["expr"]):
        kind, _, figure = name.removeprefix("nsqd_").partition("_")
        known = f'"{name}"' in code or (kind in ("topic", "channel", "tube", "cursor") and f'"{figure}":' in code)
        assert known, name


def test_metrics_are_found_in_an_expression() -> None:
    expression = 'rate(nsqd_log_sync_seconds_bucket[5m]) > nsqd_channel_depth{topic="nsqd"} and up{job="nsqd"}'
    assert metrics(expression) == {"nsqd_log_sync_seconds", "nsqd_channel_depth"}


# Commands


def flags(page: str) -> set[str]:
    """Return the flags of daemons that a page names, such as `-data-path`, without the dash."""
    commands = re.findall(r"^ +(?:nsqd|nsqlookupd|nsqadmin) (.+)$", page, re.MULTILINE)
    words = [word for command in commands for word in command.split()]
    return set(re.findall(r"`-([a-z][a-z-]+)", page)) | {word[1:] for word in words if re.fullmatch("-[a-z-]+", word)}


def test_flags_and_routes_exist(pages: dict[str, str]) -> None:
    known = {spec.flag for options in OPTIONS.values() for spec in specs(options, "x")} | {"help"}
    named = set().union(*map(flags, pages.values()))
    assert len(named) > 15
    assert named - known == set()

    declared = {route.path.partition("/{")[0] for route in (*NSQD.values(), *LOOKUPD.values())}
    named = set().union(*map(routes, pages.values()))
    assert len(named) > 10
    assert {path for path in named if path not in declared and path.rpartition("/")[0] not in declared} == set()


def routes(page: str) -> set[str]:
    """Return the paths that `curl` asks for in a page."""
    return set(re.findall(r"curl [^`\n]*?(?:[A-Z.\d]+:\d{4}|NODE|LOOKUPD)((?:/[a-z_]+)+)", page))


def commands(page: str) -> list[list[str]]:
    """Return the words of each indented command `penstock ...` of a page."""
    return [
        shlex.split(line, comments=True)
        for line in re.findall(r"^ +penstock (.+)$", page, re.MULTILINE)
        if "…" not in line
    ]


def test_commands_of_penstock_are_complete(pages: dict[str, str]) -> None:
    found = [words for page in pages.values() for words in commands(page)]
    assert len(found) > 10
    own = {made().prog: made for made in PARSERS if made().prog != "penstock"}
    for words in found:
        made = own.get(f"penstock {words[0]}")
        if made:
            made().parse_args(words[1:])
        else:
            (terminal_parser if words[0] in NAMES else penstock_parser)().parse_args(words)


def test_flags_routes_and_commands_are_found() -> None:
    page = (
        "    nsqd -data-path copy -node-id 900\n\n`-tls-cert`: `curl NODE:4151/ping`\n\n    penstock peek t c  # look\n"
    )
    page += "    curl -X POST '127.0.0.1:4151/topic/empty?topic=t'\n"
    assert flags(page) == {"data-path", "node-id", "tls-cert"}
    assert routes(page) == {"/ping", "/topic/empty"}
    assert commands(page) == [["peek", "t", "c"]]


# Tests that docs/explanation/guarantees.md names


def proofs(page: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", page))


def test_every_proof_is_a_test() -> None:
    named = proofs((ROOT / "docs/explanation/guarantees.md").read_text())
    source = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 20
    assert [name for name in sorted(named) if f"def {name}(" not in source] == []


# The collector can fail

SOURCE = """
def look(self):
    told = "LOG: the header of %s is wrong"
    log.error(told, name)
    log.warning("LOG: %d bytes are " "free in %s" if free else "LOG: nothing is free", free, where)
    log.info("LOG: all is well in here")
    self.error("LOG: this is no logger's")
    log.critical("%s: %s", kind, error)
    raise LogError(f"segment {name} is gone" f" for {why}") from None

class Node:
    async def serve(self):
        logger.exception("NODE: cannot serve %r", self)
        raise ListenError(text, f"lookup of {host} fails")

class ListenError(Exception):
    def __init__(self, address, why):
        super().__init__(f"listen ({address}) failed: {why}")
"""


def test_the_collector_finds_texts_of_every_form_and_errors_within_lines() -> None:
    assert {(line.level, line.text) for line in collected(ast.parse(SOURCE), "source")} == {
        ("ERROR", "LOG: the header of … is wrong"), ("WARNING", "LOG: … bytes are free in …"),
        ("WARNING", "LOG: nothing is free"), ("", "segment … is gone for …"), ("ERROR", "NODE: cannot serve …"),
        ("", "……lookup of … fails"), ("", "listen (…) failed: …"),
    }  # fmt: skip
    errors = [line for line in collected(ast.parse(SOURCE), "source") if not line.level]
    found = missing(errors, quoted(["    FATAL: cannot open - segment … is gone for …"]))
    assert found == ["source:16:  listen (…) failed: …", "source:14:  ……lookup of … fails"]


@each("entry, found", [
    ("WARNING: LOG: … bytes are free in …", True), ("WARNING: LOG: 17 bytes are free in /data", True),
    ("WARNING: LOG: … bytes are free …", True), ("WARNING: LOG: …", False), ("ERROR: LOG: … bytes are free in …", False),
    ("WARNING: LOG: … bytes were free in …", False), ("WARNING: LOG: … bytes are free", False),
])  # fmt: skip
def test_an_entry_shows_a_line_or_its_beginning(entry: str, found: bool) -> None:
    lines = [line for line in collected(ast.parse(SOURCE), "source") if line.text.startswith("LOG: … bytes")]
    entries = quoted([f"## Space\n\n    {entry}\n"])
    assert len(entries) == 1
    assert (missing(lines, entries) == []) is found
    assert (stale(lines, entries) == []) is found
