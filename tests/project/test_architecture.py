"""ARCHITECTURE.md, the ten types, the decisions and the packages' docstrings say what is true of the tree."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.cases import each
from tests.daemons import ROOT
from tests.project.code import sources

DECISIONS = sorted((ROOT / "docs/contributing/decisions").glob("[0-9]*.md"))
SECTIONS = ("Context", "Decision", "Measured", "Consequences")  # the last two where there is anything to say
PAGES = [
    "ARCHITECTURE.md",
    *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/contributing").glob("decisions*/../decisions/*.md")),
]
ROOMS = ("nsqd", "lookupd", "admin", "apps", "pipeline", "shared", "penstock", "pyspark_nsq", "bench")

_MADE = ("penstock/_app/", "build/docs")  # exists in a wheel only; made by make docs
_PATH = re.compile(r"`([a-z_]+(?:/[A-Za-z_.]+)+)`")
_LINK = re.compile(r"\]\(([^)#:]+)\)")
_NAME = r"`([A-Za-z_][A-Za-z_.]*)`"
_IN_FILE = re.compile(r"`([a-z_/]+\.py)`: " + _NAME)  # `file.py`: `Class.method`
_METHOD = re.compile(r"`([A-Z]\w+\.[a-z_]\w*)`")
_FROM_FILE = re.compile(_NAME + r" in `([a-z_/]+\.py)`")  # `Class.method` in `file.py`


def named_functions(text: str) -> Iterator[tuple[str, str]]:
    """Each function, class or constant that the text names together with its file: (file, qualified name)."""
    yield from _IN_FILE.findall(text)
    yield from ((file, name) for name, file in _FROM_FILE.findall(text))


@cache
def defined_names(file: Path) -> set[str]:
    """The qualified names of the functions, classes and variables of a file, methods and attributes of classes included."""
    found = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + child.name)
                if isinstance(child, ast.ClassDef):
                    visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    visit(ast.parse(file.read_text()), "")
    return found


@each("page", [*PAGES, "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/reference/glossary.md"])
def test_paths_and_links_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    paths = [path for path in _PATH.findall(text) if path not in _MADE and not (ROOT / path).exists()]
    links = [link for link in _LINK.findall(text) if not ((ROOT / page).parent / link).exists()]
    assert (paths, links) == ([], [])


@each("page", PAGES)
def test_named_functions_exist(page: str) -> None:
    wrong = []
    for file, name in named_functions(re.sub(r"\s+", " ", (ROOT / page).read_text())):
        if not (ROOT / file).is_file() or name not in defined_names(ROOT / file):
            wrong.append(f"{file}: {name}")
    assert wrong == []


def test_named_methods_exist_somewhere() -> None:
    """Also those that a page names without their file."""
    found = {name for page in PAGES for name in _METHOD.findall((ROOT / page).read_text())}
    classes = re.compile(rf"\bclass ({'|'.join(name.partition('.')[0] for name in found)})\b")
    files = [path for room in ROOMS for path, text in sources(room).items() if classes.search(text)]
    defined = {name for file in files for name in defined_names(ROOT / file)}
    assert sorted(found - defined) == []
    assert len(found) > 40


def test_the_ten_types_have_the_fields_that_their_page_names() -> None:
    page = (ROOT / "docs/contributing/ten-types.md").read_text()
    types = re.findall(r"^## \w+\n\n`([\w/]+\.py)`\. .*?\n\n(.*?)(?=\n## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert len(types) == 10
    for file, text in types:
        named = {one for line in re.findall(r"^\* (.*?):", text, re.MULTILINE) for one in re.findall(r"`(\w+)`", line)}
        package = "".join(path.read_text() for path in (ROOT / file).parent.glob("*.py"))
        assert len(named) >= 4
        assert named - set(re.findall(r"\w+", package)) == set(), file


def test_architecture_md_is_short_and_decisions_are_numbered_without_a_gap() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 140
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs/contributing/decisions.md").read_text(), re.MULTILINE)
    assert list(map(int, rows)) == list(range(1, len(rows) + 1))
    assert len(rows) > 100


@each("path", DECISIONS)
def test_a_decision_has_its_sections_and_a_row_in_the_table(path: Path) -> None:
    lines = path.read_text().splitlines()
    number, _, title = lines[0].removeprefix("# ").partition(". ")
    assert int(number) == int(path.name[:4])
    sections = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert sections == [section for section in SECTIONS if section in ("Context", "Decision") or section in sections]
    assert len(lines) <= 60
    assert f"| {number} | [{title}](decisions/{path.name}) | " in (ROOT / "docs/contributing/decisions.md").read_text()


def packages() -> list[Path]:
    return [path.parent for room in ROOMS for path in sorted((ROOT / room).rglob("__init__.py"))]


@each("package", packages())
def test_the_docstring_of_a_package_names_its_modules(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = [path.stem for path in package.glob("*.py") if not path.stem.startswith("__")]
    modules += [path.parent.name for path in package.glob("*/__init__.py")]
    assert [name for name in sorted(modules) if f"`{name}`" not in docstring] == []
