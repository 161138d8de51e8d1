"""The words that users see: no template, script, option help, error or log line has a phrase that was retired."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

from tests.daemons import ROOT
from tests.project.code import PACKAGES, sources

SCRIPTS = tuple(f"admin/static/{name}.js" for name in ("charts", "keys", "live", "times"))
# A retired phrase, as a regular expression in lower case, and what to write instead.
RETIRED = {
    r"\bleft/s\b": "Finished/s", r"\blately\b": "name the period", r"\boldest waits\b": "Oldest message",
    r"\bwaits? for [0-9{]": "Oldest message: AGE", r"\bfor ever\b": "until unpaused, or: no limit",
    r"\bto the content\b": "Skip to content", r"\b(name|body|header|words) has$": "Filter by, or: Search",
    r"\blooking changes\b": "Read-only view: delivery is not affected",
    r"\bsomebody\b": "anonymous, or say who",
    r"\bnobody (is|can|has|reads|logs|was|asked)\b": "say what happened to what",
    r"\bwent wrong\b": "Request failed", r"\bmay not do\b": "Access denied", r"\bnothing was done\b": "Nothing was changed",
    r"\bbegun\b": "started", r"\bthey are lost then\b": "This permanently removes them", r"\bit drains\b": "Draining started",
    r"\btells? (more|of|how|who|which)\b": "See, lists, or: shows", r"\btold\b": "sent, printed, reported, or: published",
    r"(^|[:;(] )want(s|ed)? (an? |one |[0-9<{])": "expected", r"\bwants (either|one|no)\b": "use either",
    r"\bis no (?!longer)[a-z]": "is not a", r"\bthere (is|are) no(ne)?\b": "not found, or: has no",
    r"\b(messages|jobs|most|{}) a (second|minute|{})": "per second, per minute",
    r"\bat the most\b": "at most, or: max.", r"\bdeepest\b|\"longest\"": "Max. depth, Max. latency",
    r"\b(he|his|him)\b": "the user", r"\bwhoever\b": "say who", r"\btaken over\b": "imported",
    r"\bstays? as (it|they)\b": "nothing was changed", r"\bgoes on\b|\bgo on\b": "continue, or: unpaused",
    r"\bany ?more\b": "no longer", r"\bgrave": "dead letter", r"\blobby\b|\bseats?\b": "slots", r"\bmade ahead\b": "spare",
    # what the trial of nsqadmin listed
    r"\bolder than others\b": "outdated", r"\bknown to:? [0-9{]": "registered with", r"\bsearch on\b": "Continue searching",
    r"\bfound \{\{?[^}]*\}: go\b": "N matches in the first N messages",
    r"\bare not shown to you\b": "You do not have permission to view message bodies",
    r"\bmany(\.\.\.|&hellip;)": "Bulk action", r"\bothers were faster\b": "the queue ran out of messages",
    r"\bwhen its time is over\b": "requeued when they time out",
    r"\bnothing is noted\b|\bwith the first look\b": "Collecting data",
    r"\bto empty a topic drops\b": "Empty deletes only", r"\bone a line\b": "One per line",
    r"\bit takes messages again\b": "Node accepts messages again",
    r"\bproducers are refused\b": "The node rejects new messages", r"\bsees? to them\b": "need manual action",
    r"\bit is not known what\b": "Topics unavailable", r"\bstill owed\b|\blive share\b": "in use",
    r"\btried again\b|\bfound damaged\b": "read retries, corrupt", r"\bjobs ever\b": "total jobs",
    r"\bhas come by\b": "No tubes",
    r"\bhas passed before it was read\b": "messages expired before they were read",
    r"\bthe latest (thousand|thirty)\b": "Last 1,000 entries", r"\bit needs another role\b": "Your role does not allow this",
    r"\bdoes not lead out\b": "is not available for", r"\bit is there now\b": "Available again",
    r"\bpages live at\b": "Too many live connections", r"\bis rolled up yet\b": "No rollups yet",
    r"\bsound answer\b": "valid answer",
}  # fmt: skip
# Not prose: a role's name, a metric's label, words of NSQ and of beanstalkd.
ALLOWED = {"lookupd/net.py": {"lobby"}}


# Phrases that no page has: old -> new
PHRASES = {
    "moves the edge": "moves the distributed offset", "the topic's edge": "the distributed offset",
    "the grave": "the dead letter", "take-over": "failover", "Take-over": "Failover", "adopted log": "promoted log",
    "adopter": "new leader", "claimant": "candidate", "followers that count": "in-sync followers",
    "gave the log up": "stepped down", "hands its logs over": "transfers its logs", "log's owner": "leader of the log",
    "mirror of a log": "replica of a log", "owner of a log": "leader of a log", "owner of the log": "leader of the log",
    "owner of its log": "leader of its log", "owners of logs": "leaders of logs",
    "stand for the log": "be a candidate for the log", "stands for the log": "is a candidate for the log",
    "taken the log over": "promoted the log", "takes the log over": "promotes the log",
}  # fmt: skip


# To parse the product takes ten times as long as these expressions.
_LITERAL = r'''[rfb]{0,2}(?:"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')'''
_STRING = re.compile(rf'(?:#[^\n]*|^ *"""(?:[^\\]|\\.)*?""")|({_LITERAL}(?:\s*{_LITERAL})*)', re.MULTILINE | re.DOTALL)
_PART = re.compile(r'''([rfb]{0,2})("""|"|')((?:[^\\]|\\.)*?)\2\s*''', re.DOTALL)
_FIELD = re.compile(r"\{\{|\}\}|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


def strings_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module by line, without docstrings; {} stands for a value, whose own strings follow."""
    line, start = 1, 0
    for found in _STRING.finditer(source):
        if found[1] is None:  # a comment or a docstring
            continue
        line += source.count("\n", start, found.start())
        start, fields, text = found.start(), list[str](), ""
        for prefix, _, part in _PART.findall(found[1]):
            if "f" in prefix:
                fields += _FIELD.findall(part)
                part = _FIELD.sub(lambda field: "{}" if len(field[0]) > 2 else field[0][0], part)
            text += part
        yield line, text.replace("\\n", "\n").replace('\\"', '"')
        yield from ((line, inner) for field in fields for _, inner in strings_of(field))


@cache
def texts() -> dict[str, str]:
    """Return each text that a user may see, by its file and line."""
    found: dict[str, str] = {}
    for name, source in chain.from_iterable(sources(package).items() for package in PACKAGES):
        for line, text in strings_of(source):
            if " " in text and text not in ALLOWED.get(name, ()):
                where = f"{name}:{line}"
                found[where] = f"{found.get(where, '')}\n{text}"
    for path in sorted((ROOT / "admin/templates").glob("*.html")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found[f"{path.relative_to(ROOT).as_posix()}:{number}"] = re.sub(r"<[^>]*>|{#.*?#}", " ", line)
    for script in SCRIPTS:
        for number, line in enumerate((ROOT / script).read_text().splitlines(), 1):
            if not line.strip().startswith("//"):
                found[f"{script}:{number}"] = line
    return found


def retired_in(texts: dict[str, str]) -> list[str]:
    """Return what is wrong with the texts: where, what to write instead, and the text."""
    lower = {where: text.lower() for where, text in texts.items()}
    everything = "\n\n".join(lower.values())
    return [
        f"{where}: write {instead!r}: {texts[where].strip()[:120]}"
        for phrase, instead in RETIRED.items()
        if (retired := re.compile(phrase, re.MULTILINE)).search(everything)
        for where, text in lower.items()
        if retired.search(text)
    ]


def test_no_user_reads_a_retired_phrase() -> None:
    assert len(texts()) > 1000
    assert retired_in(texts()) == []


def test_the_check_finds_what_it_looks_for() -> None:
    source = '''
"""No module tells more."""
def f(x):
    """It tells more."""
    log.info(f"it waits for {x} s")
    log.info("%s tells " "more", x)
'''
    found = {f"source:{line}": text for line, text in strings_of(source)}
    assert set(found.values()) == {"it waits for {} s", "%s tells more"}
    assert len(retired_in(found)) == 2


def test_no_page_has_a_retired_phrase() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    texts = {
        path: re.sub(r"\s+", " ", path.read_text())
        for path in pages
        if path.name not in ("CHANGELOG.md", "style.md")  # what was said then; words before and after
    }
    found = [f"{path}: {old} -> {new}" for path, text in texts.items() for old, new in PHRASES.items() if old in text]
    assert found == []
