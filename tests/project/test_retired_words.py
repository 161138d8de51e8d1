"""Names that the code has given up do not come back. docs/glossary.md has the words that took their places."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each
from tests.daemons import ROOT
from tests.project.code import trees

ROOMS = ("nsqd", "lookupd", "admin", "shared", "apps", "penstock", "pipeline")

# Names of classes, functions, attributes and variables that no room has: old -> new
EVERYWHERE = {
    "Commons": "NodeContext",
    "Held": "StoredExtent",
    "Keeping": "StoragePolicy",
    "KeptExtents": "RetainedExtents",
    "LogPicture": "LogSnapshot",
    "Piece": "Location",
    "Portions": "TimeSlice",
    "Puts": "PutBatch",
    "Terms": "JobOptions",
    "ToldStore": "RecordingStore",
    "WaitingPages": "DeferredPages",
    "_commons": "_context",
    "came_together": "add_jobs",
    "commons": "context",
    "find_cached": "read_frames_cached",
    "go_on": "keep_alive, count_some, recover_some or continue_mpub",
    "grave": "letter",
    "graves": "letters",
    "keep_to_budget": "evict",
    "keeping": "policy",
    "known_sequence": "find_sequence",
    "leavers": "disconnected",
    "owe": "set_references",
    "owe_again": "add_references",
    "owing": "references",
    "pass_edge": "pass_all",
    "put_known": "put_with_id",
    "seal_known": "seal_with_times",
    "take_puts": "take_put_batches",
    "unsettled": "unsealed_puts",
    "forget_stranger": "cancel_scan",
}

# ... and of one room only, because the word is right in another one: room -> (old -> new). Add a room's own words here.
IN_ROOM = {
    "nsqd": {
        "Adopting": "Promoting",
        "Adoptions": "Promotions",
        "AdoptedLog": "PromotedLog",
        "Claim": "VoteRequest",
        "Claimant": "Candidate",
        "Claims": "Elections",
        "Edge": "TopicOffsets or Admission",
        "Found": "FoundFrames, StartResults or PendingOffset",
        "Grave": "DeadLetter",
        "Handovers": "Transfers",
        "Kind": "ReaderKind or RecordKind",
        "Left": "DrainStatus",
        "Look": "FrameLookup or OverviewRows",
        "Mirror": "Replica",
        "MirrorView": "ReplicaView",
        "Mirrors": "Replicas",
        "Origin": "LeaderSide",
        "OwnerSilentError": "LeaderSilentError",
        "Ownership": "Leaders",
        "Seen": "Dedup",
        "Served": "HttpReplies",
        "_Told": "JobsPage or MessagesPage",
        "came": "add_job",
        "edge": "offsets or distributed",
        "_edge": "_offsets",
        "freed": "released",
        "owed": "refcounts or unfinished",
        "picture": "snapshot or figures",
        "pieces": "locations or buffers",
        "piece": "location",
        "puts": "put_batch",
        "settle": "seal_puts, conclude, resolve, sync_all or join_retained",
        "terms": "options",
        "told": "describe, as_dict or columns",
        "went": "remove_job",
    },
    "penstock": {
        "At": "LogPosition",
        "Place": "NodeTopic",
        "There": "TopicRange",
        "_there": "_ranges",
        "there_of": "range_of",
    },
}

# Methods whose name says nothing, for a dozen classes had one: room -> (old -> new)
METHODS = {
    "nsqd": {
        "come": "add",
        "give": "deliver",
        "look": "check, poll, read or find",
        "note": "count, remember or record",
        "of": "from_reader",
        "take": "pop, issue, drain or choose",
        "tell": "note, queue or log",
    },
    "penstock": {"look": "read or ask", "take": "pop, read or handle", "tell": "note or queue"},
}

# Phrases that no page has: old -> new
PHRASES = {
    "moves the edge": "moves the distributed offset",
    "the topic's edge": "the distributed offset",
    "the grave": "the dead letter",
    "take-over": "failover",
    "Take-over": "Failover",
    "adopted log": "promoted log",
    "adopter": "new leader",
    "claimant": "candidate",
    "followers that count": "in-sync followers",
    "gave the log up": "stepped down",
    "hands its logs over": "transfers its logs",
    "log's owner": "leader of the log",
    "mirror of a log": "replica of a log",
    "owner of a log": "leader of a log",
    "owner of the log": "leader of the log",
    "owner of its log": "leader of its log",
    "owners of logs": "leaders of logs",
    "stand for the log": "be a candidate for the log",
    "stands for the log": "is a candidate for the log",
    "taken the log over": "promoted the log",
    "takes the log over": "promotes the log",
}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if path.name not in ("CHANGELOG.md", "style.md")  # what was said then; words before and after
)


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name of the tree with its line: classes, functions, parameters, variables, attributes, keywords and imports."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, line
        elif isinstance(node, ast.Name):
            yield node.id, line
        elif isinstance(node, ast.Attribute):
            yield node.attr, line
        elif isinstance(node, ast.arg) or (isinstance(node, ast.keyword) and node.arg is not None):
            yield node.arg, line
        elif isinstance(node, ast.alias):
            for name in (node.name.rpartition(".")[2], node.asname):
                if name is not None:
                    yield name, line


def methods(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (
                (one.name, one.lineno) for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            )


@each("room", ROOMS)
def test_retired_words(room: str) -> None:
    retired, of_methods = EVERYWHERE | IN_ROOM.get(room, {}), METHODS.get(room, {})
    anywhere = rf"\b({'|'.join(retired)})\b|\bdef ({'|'.join(of_methods)})\("
    found = [
        f"{file}:{line}: {name} -> {words[name]}"
        for file, tree in trees((room,), anywhere)
        for words, names in ((retired, identifiers(tree)), (of_methods, methods(tree)))
        for name, line in names
        if name in words
    ]
    assert found == []


def test_retired_phrases() -> None:
    texts = {page: re.sub(r"\s+", " ", Path(ROOT / page).read_text()) for page in PAGES}
    found = [f"{page}: {old} -> {new}" for page, text in texts.items() for old, new in PHRASES.items() if old in text]
    assert found == []
