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
from docs.generate import OPTIONS, PARSERS, penstock_parser, terminal_parser
from shared.options import specs
from tests.cases import each
from tests.daemons import ROOT
from tests.declared_routes import LOOKUPD, NSQD
from tests.project.code import PACKAGES, trees

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
    assigned: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        found: list[tuple[str, str]] = []
        match node:
            case ast.Assign(targets=[ast.Name(id=variable)], value=text):
                assigned[variable] = assigned.get(variable, []) + _texts(text)
            case ast.Call(func=ast.Attribute(value=logger, attr=method), args=[text, *_]) if _name(logger) in LOGGERS:
                texts = assigned.get(_name(text), []) or _texts(text)
                found = [(LEVELS[method], one) for one in texts] if method in LEVELS else []
            case ast.Call(func=error, args=[_, *_] as arguments) if _name(error) in STOPS:
                found = [("", VARIES.join(one for argument in arguments for one in _texts(argument)))]
            case ast.ClassDef(name=name) if name in STOPS:  # it makes its text of its arguments
                found = [("", one) for call in ast.walk(node) if isinstance(call, ast.Call) and _name(call.func) == "__init__"
                         for argument in call.args for one in _texts(argument)]  # fmt: skip
        for level, text in found:
            if _letters(text) >= _LETTERS:
                yield Line(level, text, f"{file}:{node.lineno}")


def logged_at_info(tree: ast.Module) -> Iterator[str]:
    """Yield the texts that a module logs at INFO, with `…` for each part that varies."""
    for call in ast.walk(tree):
        match call:
            case ast.Call(func=ast.Attribute(value=logger, attr="info"), args=[text, *_]) if _name(logger) in LOGGERS:
                yield from (one for one in _texts(text) if _letters(one) >= _LETTERS)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _texts(node: ast.expr) -> list[str]:
    """Return the texts that an expression may have, `…` for what varies."""
    match node:
        case ast.Constant(value=str(text)):
            return [_DIRECTIVE.sub(VARIES, text)]
        case ast.JoinedStr(values=parts):
            return ["".join(part.value if isinstance(part, ast.Constant) else VARIES for part in parts)]  # type: ignore[misc]
        case ast.IfExp(body=one, orelse=other):
            return [*_texts(one), *_texts(other)]
        case _:
            return [VARIES]


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
    code = declared()
    for name in metrics(rule["expr"]):
        kind, _, figure = name.removeprefix("nsqd_").partition("_")
        known = f'"{name}"' in code or (kind in ("topic", "channel", "tube", "cursor") and f'"{figure}":' in code)
        assert known, name


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


# Tests that docs/explanation/guarantees.md names


def proofs(page: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", page))


def test_every_proof_is_a_test() -> None:
    named = proofs((ROOT / "docs/explanation/guarantees.md").read_text())
    source = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 20
    assert [name for name in sorted(named) if f"def {name}(" not in source] == []
