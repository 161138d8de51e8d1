"""docs/reference is up to date, and docs name no option, route or subcommand that does not exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.dashboards import recording_rules
from docs.flags_page import OPTIONS, penstock_parser
from docs.generate import ALERTS, PAGES, RECORDED, REFERENCE, nsqadmin_alerts
from docs.route_table import NSQADMIN
from shared.options import specs
from shared.topic_config import SETTINGS
from tests.cases import each
from tests.daemons import ROOT
from tests.declared_routes import LOOKUPD, NSQD
from tests.project.code import trees

GUIDES = [ROOT / "README.md", ROOT / "docs/index.md"]
for _part in ("tutorials", "how-to", "explanation", "reference", "troubleshooting"):
    GUIDES += sorted((ROOT / "docs" / _part).glob("*.md"))
PYTHON = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
ROUTE = re.compile(r"127\.0\.0\.1:(4151|4161|4171)(/[a-z_/]*)")
ROUTES = {"4151": NSQD, "4161": LOOKUPD, "4171": NSQADMIN}
COMMAND = re.compile(
    r"^ *(?:\.venv/bin/)?(nsqd|nsqlookupd|nsqadmin|nsq_tail|nsq_stat|to_nsq|nsq_to_(?:file|nsq|http)) (-.*)$",
    re.MULTILINE,
)
SUBCOMMAND = re.compile(r"(?:^ *|\.venv/bin/|`)penstock ([a-z]+(?:-[a-z]+)*)", re.MULTILINE)
ERROR = re.compile(r"[A-Z]+(?:_[A-Z]+)+|DRAINING|EXITING|FORBIDDEN|UNAUTHORIZED")


@pytest.mark.parametrize("name", sorted(PAGES))
@pytest.mark.process
def test_pages_are_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run: make reference"


def test_each_command_of_penstock_has_an_example_that_was_executed() -> None:
    shown = re.findall(r"^\$ .*$", (REFERENCE / "cli.md").read_text(), re.MULTILINE)
    executed = {name for line in shown for name in re.findall(r"\bpenstock ([a-z-]+)", line)}
    assert executed == set(next(action.choices for action in penstock_parser()._actions if action.choices))


def test_the_alerts_of_nsqadmin_are_up_to_date() -> None:
    assert ALERTS.read_text() == nsqadmin_alerts(), "run: make reference"
    assert RECORDED.read_text() == recording_rules(), "run: make reference"


@each("page", GUIDES)
def test_python_compiles(page: Path) -> None:
    for indentation, text in PYTHON.findall(page.read_text()):
        compile("\n".join(line.removeprefix(indentation) for line in text.split("\n")), page.name, "exec")


@each("page", GUIDES)
def test_routes_exist(page: Path) -> None:
    for port, path in ROUTE.findall(page.read_text()):
        known = {route.partition(" ")[2] for route in ROUTES[port]}
        browsers = port == "4171" and not path.startswith("/api")
        assert path == "/" or browsers or path.startswith("/config/") or path in known, path


def test_options_and_subcommands_exist() -> None:
    known = {program: {spec.flag for spec in specs(options, program)} for program, options in OPTIONS.items()}
    commands = set(next(action.choices for action in penstock_parser()._actions if action.choices) or ())
    for page in GUIDES:
        text = page.read_text()
        for program, words in COMMAND.findall(text):
            named = re.findall(r"(?:^| )--?([a-z][a-z0-9-]+)", words.partition("#")[0])
            assert set(named) <= known[program] | {"n", "help"}, f"{page.name}: {program} {words}"
        assert set(SUBCOMMAND.findall(text)) <= commands, page.name


def http_errors() -> Iterator[str]:
    """Every text of an HttpError in the daemons' code that is a constant of NSQ's kind."""
    for _, tree in trees(("nsqd", "lookupd", "shared"), r"\b(HttpError|WireError)\("):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("HttpError", "WireError"):
                for word in ast.walk(node):
                    if isinstance(word, ast.Constant) and isinstance(word.value, str) and ERROR.fullmatch(word.value):
                        yield word.value


def test_every_error_is_listed() -> None:
    text = (REFERENCE / "errors.md").read_text()
    by_argument = ("MISSING_ARG_", "INVALID_ARG_")
    found = set(http_errors())
    assert len(found) > 40
    assert sorted(error for error in found if not error.startswith(by_argument) and f"`{error}`" not in text) == []


def test_every_setting_is_listed_and_marked_if_channels_may_have_it() -> None:
    cells = " ".join(re.findall(r"^\|([^|]*)\|", (REFERENCE / "settings.md").read_text(), re.MULTILINE))
    for name, setting in SETTINGS.items():
        (found,) = set(re.findall(rf"`{name}(?:=[a-z-]+)?`(\*?)", cells))
        assert (found == "*") == setting.of_channels, name
