"""The words that users see: no template, script, option help, error or log line has a phrase that was retired."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.daemons import ROOT

PACKAGES = ("admin", "apps", "lookupd", "nsqd", "penstock", "pipeline", "pyspark_nsq", "shared")
SCRIPTS = tuple(f"admin/static/{name}.js" for name in ("charts", "keys", "live", "times"))
# A retired phrase, as a regular expression in lower case, and what to write instead.
RETIRED = {
    r"\bleft/s\b": "Finished/s",
    r"\blately\b": "name the period",
    r"\boldest waits\b": "Oldest message",
    r"\bwaits? for [0-9{]": "Oldest message: AGE",
    r"\bfor ever\b": "until unpaused, or: no limit",
    r"\bto the content\b": "Skip to content",
    r"\b(name|body|header|words) has\b": "Filter by, or: Search",
    r"\blooking changes\b": "Read-only view: delivery is not affected",
    r"\bsomebody\b": "anonymous, or say who",
    r"\bnobody (is|can|has|reads|logs|was|asked)\b": "say what happened to what",
    r"\bwent wrong\b": "Request failed",
    r"\bmay not do\b": "Access denied",
    r"\bnothing was done\b": "Nothing was changed",
    r"\bbegun\b": "started",
    r"\bthey are lost then\b": "This permanently removes them",
    r"\bit drains\b": "Draining started",
    r"\btells? (more|of|how|who|which)\b": "See, lists, or: shows",
    r"\btold\b": "sent, printed, reported, or: published",
    r"(^|[:;(] )want(s|ed)? (an? |one |[0-9<{])": "expected",
    r"\bwants (either|one|no)\b": "use either",
    r"\bis no (?!longer)[a-z]": "is not a",
    r"\bthere (is|are) no(ne)?\b": "not found, or: has no",
    r"\b(messages|jobs|most|{}) a (second|minute|{})": "per second, per minute",
    r"\bat the most\b": "at most, or: max.",
    r"\bdeepest\b|\"longest\"": "Max. depth, Max. latency",
    r"\b(he|his|him)\b": "the user",
    r"\bwhoever\b": "say who",
    r"\btaken over\b": "imported",
    r"\bstays? as (it|they)\b": "nothing was changed",
    r"\bgoes on\b|\bgo on\b": "continue, or: unpaused",
    r"\bany ?more\b": "no longer",
    r"\bgrave": "dead letter",
    r"\blobby\b|\bseats?\b": "slots",
    r"\bmade ahead\b": "spare",
    # what the trial of nsqadmin listed
    r"\bolder than others\b": "outdated",
    r"\bknown to:? [0-9{]": "registered with",
    r"\bsearch on\b": "Continue searching",
    r"\bfound \{\{?[^}]*\}: go\b": "N matches in the first N messages",
    r"\bare not shown to you\b": "You do not have permission to view message bodies",
    r"\bmany(\.\.\.|&hellip;)": "Bulk action",
    r"\bothers were faster\b": "the queue ran out of messages",
    r"\bwhen its time is over\b": "requeued when they time out",
    r"\bnothing is noted\b|\bwith the first look\b": "Collecting data",
    r"\bto empty a topic drops\b": "Empty deletes only",
    r"\bone a line\b": "One per line",
    r"\bit takes messages again\b": "Node accepts messages again",
    r"\bproducers are refused\b": "The node rejects new messages",
    r"\bsees? to them\b": "need manual action",
    r"\bit is not known what\b": "Topics unavailable",
    r"\bstill owed\b|\blive share\b": "in use",
    r"\btried again\b|\bfound damaged\b": "read retries, corrupt",
    r"\bjobs ever\b": "total jobs",
    r"\bhas come by\b": "No tubes",
    r"\bhas passed before it was read\b": "messages expired before they were read",
    r"\bthe latest (thousand|thirty)\b": "Last 1,000 entries",
    r"\bit needs another role\b": "Your role does not allow this",
    r"\bdoes not lead out\b": "is not available for",
    r"\bit is there now\b": "Available again",
    r"\bpages live at\b": "Too many live connections",
    r"\bis rolled up yet\b": "No rollups yet",
    r"\bsound answer\b": "valid answer",
}
# Not prose: a role's name, a metric's label, words of NSQ and of beanstalkd.
ALLOWED = {
    "lookupd/net.py": {"lobby"},
}


def docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of the nodes that are docstrings."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(id(first.value))
    return found


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of a Python file that are no docstrings, by line; a placeholder stands for each value."""
    tree = ast.parse(path.read_text())
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in node.values}
            yield (
                node.lineno,
                "".join(
                    value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else "{}"
                    for value in node.values
                ),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return each text that a user may see, after its file and line."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for line, text in strings_of(path):
                if " " in text and text not in ALLOWED.get(name, ()):
                    yield f"{name}:{line}", text
    for path in sorted((ROOT / "admin/templates").glob("*.html")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield f"{path.relative_to(ROOT).as_posix()}:{number}", re.sub(r"<[^>]*>|{#.*?#}", " ", line)
    for script in SCRIPTS:
        for number, line in enumerate((ROOT / script).read_text().splitlines(), 1):
            if not line.strip().startswith("//"):
                yield f"{script}:{number}", line


@pytest.mark.parametrize(("phrase", "instead"), RETIRED.items())
def test_no_user_reads_a_retired_phrase(phrase: str, instead: str) -> None:
    retired = re.compile(phrase)
    found = [f"{where}: {text.strip()[:120]}" for where, text in texts() if retired.search(text.lower())]
    assert not found, f"write {instead!r}"


def test_the_check_finds_what_it_looks_for() -> None:
    assert len(texts()) > 1000
