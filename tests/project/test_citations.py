"""Every citation resolves: pages of docs with their headings, links between documents, and files of code by path or name.

The functions look at text alone, so that the tests of the tests can plant wrong citations.
"""

import posixpath
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from tests.daemons import ROOT

pytestmark = pytest.mark.process  # it asks git for the files

_SUFFIXES = (".py", ".md", ".toml", ".yml", ".yaml", ".html", ".js", ".css", "Makefile", "Dockerfile")
_VENDORED = re.compile(r"\.min\.(js|css)$")
_PAGE = re.compile(r"\bdocs/[A-Za-z0-9_/.-]+\.md(?:#[A-Za-z0-9_-]+)?")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#* *$", re.MULTILINE)
_CODE = re.compile(r"`((?:admin|apps|bench|lookupd|nsqd|penstock|pipeline|shared|tests)/[A-Za-z0-9_./]+)`")
_FILE = re.compile(r"(?<![\w./{*-])(?:[a-z_]+/)*[a-z_]\w*\.py\b")
_EXAMPLES = {"file.py", "test_made.py"}  # names in tests that are no files
_PAST = "CHANGELOG.md"  # it names files as they were called then
_MADE = ("penstock/_app/",)  # exists in a wheel only
# Citations that a reader of the repository cannot look up.
_ELSEWHERE = {
    "a text outside of the repository": re.compile(r"\bspecs" + "/"),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|wt|root|home)/\w"),
    "a numbered section of ARCHITECTURE.md": re.compile(
        r"ARCHITECTURE(?:\.md)?,? section \d|section \d+ of ARCHITECTURE"
    ),
}


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for match in _HEADING.finditer(_FENCED.sub("", text)):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[1]).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)


def complaints(name: str, text: str, files: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the citations in the file `name`. `files`: the text of every tracked file, by its path."""
    for what, pattern in _ELSEWHERE.items():
        yield from (f"{match[0]}: {what}" for match in pattern.finditer(text))
    for match in _PAGE.finditer(text):
        yield from _unresolved(match[0], match[0], files)
    for match in _FILE.finditer(text) if name != _PAST else ():
        if match[0] not in _EXAMPLES and not _names_a_file(match[0], files):
            yield f"{match[0]}: there is no such file"
    if not name.endswith(".md"):
        return
    for match in _LINK.finditer(_FENCED.sub("", text)):
        target = match[1]
        if re.match(r"[a-z]+:", target):
            continue
        path, hash_, anchor = target.partition("#")
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        yield from _unresolved(target, whole + hash_ + anchor, files)
    for match in _CODE.finditer(text):
        if not match[1].endswith(".py") and match[1] not in _MADE and not _exists(match[1].rstrip("/"), files):
            yield f"{match[1]}: there is no such file"


def _unresolved(shown: str, target: str, files: Mapping[str, str]) -> Iterator[str]:
    path, _, anchor = target.partition("#")
    if not _exists(path, files):
        yield f"{shown}: there is no such file"
    elif anchor and anchor not in anchors(files.get(path, "")):
        yield f"{shown}: there is no such heading"


def _exists(path: str, files: Mapping[str, str]) -> bool:
    return path in files or path in _directories(tuple(files))


def _names_a_file(path: str, files: Mapping[str, str]) -> bool:
    """Return whether a tracked file has this path, or a path that ends with it."""
    return path in _endings(tuple(files))


@cache
def _endings(files: tuple[str, ...]) -> frozenset[str]:
    return frozenset(file.split("/", start)[-1] for file in files for start in range(file.count("/") + 1))


@cache
def _directories(files: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = {"."}
    for file in files:
        while file := posixpath.dirname(file):
            found.add(file)
    return frozenset(found)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The text of every tracked file that can cite, and "" for every other one, by path."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return {
        name: (ROOT / name).read_text() if name.endswith(_SUFFIXES) and not _VENDORED.search(name) else ""
        for name in names
    }


def test_every_citation_resolves_and_code_cites_the_design(files: dict[str, str]) -> None:
    own = f"tests/project/{__name__.rpartition('.')[2]}.py"  # it plants wrong ones
    assert own in files
    wrong = [f"{name}: {line}" for name, text in files.items() if name != own for line in complaints(name, text, files)]
    assert wrong == []
    cited = [one for name, text in files.items() if name.endswith(".py") for one in _PAGE.findall(text)]
    assert len([one for one in cited if one.startswith("docs/contributing/design/")]) > 50
    pages = {posixpath.basename(name) for name in files if name.startswith("docs/contributing/design/")} - {"index.md"}
    assert pages
    assert {page for page in pages if f"]({page})" not in files["docs/contributing/design/index.md"]} == set()


SMALL = {
    "README.md": "# One\n[two](docs/two.md#a-heading-of-nsqds) [dir](docs) [own](#one) [out](https://example.org/x.md)\n",
    "docs/two.md": "# Two\n## A heading of `nsqd`'s\n## Again\n## Again\n```\n# no heading\n```\n`nsqd/a.py`\n",
    "nsqd/a.py": '"""See docs/two.md#again-1 and docs/two.md."""\n',
}


def test_a_right_citation_is_not_complained_of() -> None:
    assert [line for name, text in SMALL.items() for line in complaints(name, text, SMALL)] == []


@pytest.mark.parametrize(("name", "text", "complaint"), [
    ("nsqd/a.py", "# docs/three.md", "docs/three.md: there is no such file"),
    ("nsqd/a.py", "# docs/two.md#gone", "docs/two.md#gone: there is no such heading"),
    ("nsqd/a.py", "# docs/two.md#again-2", "docs/two.md#again-2: there is no such heading"),
    ("docs/two.md", "[out](../../elsewhere.md)", "../../elsewhere.md: there is no such file"),
    ("docs/two.md", "`nsqd/b.py`", "nsqd/b.py: there is no such file"),
    ("nsqd/a.py", '"""See b.py and a.py."""', "b.py: there is no such file"),
    ("nsqd/a.py", "# specs/nsq.md a11", "specs/: a text outside of the repository"),
    ("nsqd/a.py", "# /" + "work/shared", "/" + "work/s: a path of one machine"),
])  # fmt: skip
def test_a_wrong_citation_is_found(name: str, text: str, complaint: str) -> None:
    assert list(complaints(name, text, SMALL)) == [complaint]
