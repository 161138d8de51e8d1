"""Find retired words and sentence patterns in the tracked files of a repository, and print the words to use instead.

    python -m tests.words [PATH ...]    one line per match: file:line: [rule] "match" -> suggestion
    ... --count                   one line per rule: matches in all, in docs, in docstrings and comments, in texts for
                                  users, and in names of code and files; then the suggestion
    ... --since main              only lines added or changed since a commit
    ... --budgets tests/words.budget    exit 1 if any rule has more matches than its line in that file; `make check` calls
                                        this. With --lower the file gets the matches there are, where these are fewer
    ... --level 2                 also words whose replacement is a rename (adopt, mirror, ...); 3: also advice

The exit code is 0 without matches or within the budgets, 1 otherwise, and 2 for wrong arguments. A line with `words: ok` is
skipped. A phrase that continues on the next line is not found. Standard library only. To retire a word, add a line to
RULES, with an example to docs/contributing/style.md.
"""

# ruff: noqa: E501 (a rule is one line)

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

CLUSTER = (
    "nsqd/cluster",
    "nsqd/replication",
    "nsqd/protocols/peer",
    "docs/contributing/design/cluster-protocol.md",
    "docs/operations",
    "admin/cluster",
)
STORAGE = ("nsqd/storage", "nsqd/core", "docs/contributing/design/log.md")
# Examples and lists of retired words, and pages that `make reference` writes from strings that are checked in the code
EXEMPT = re.compile(
    r"(^|/)((test_(user_)?)?words\.py|style\.md)$"
    r"|^docs/reference/(flags|http-routes|routes|metrics|alarms|cli)\.md$|^tests/clients/|^admin/static/vendor"
)
OK = "words: ok"


class Rule(NamedTuple):
    """A retired word. `scopes`: d docs, s docstrings, c comments, t texts for users, n names, f file names."""

    name: str
    level: int
    scopes: str
    pattern: str
    instead: str
    paths: tuple[str, ...] = ()  # prefixes of the files to which it applies; (): all


PROSE, ALL = "dsct", "dsctn"
RULES = [
    # Level 1: sentence patterns. Each hides the subject, or gives human verbs to machines.
    Rule("nobody", 1, PROSE, r"\b(no|some|any|every)body\b", "name the actor: no client, an operator, each node"),
    Rule("whoever", 1, PROSE, r"\bwhoever\b", "any client (node, user) that ..."),
    Rule("headless-who", 1, PROSE, r"(?:^|[.;:,(|*] ?)[Ww]ho (?:does|is|has|may|wants?|asks?|waits?|publishes|owns|gets)\b",
         "a daemon (client, node) that ..."),
    Rule("headless-what", 1, PROSE, r"(?:^|[.:;|*] )What (?:is|was|a|an|the|no|has|only|nobody|somebody|comes|belongs) ",
         "begin with the noun: Daemons that are down ..."),
    Rule("inversion", 1, PROSE, r"(?-i:\b(?:Recorded|Kept|Live|Left out|Not suspected|Not covered|Allowed) (?:are|is)\b)",
         "subject first: nsqd records ..."),
    Rule("told", 1, PROSE, r"\b(?:is|are|was|were|be|been|being|has|have|had|not) told\b|\btold (?:of|about|that|so|what|how|who|when|in|last|by)\b",
         "is notified, receives, learns; or reports, shows"),
    Rule("tell", 1, PROSE, r"\btells?\b", "shows, returns, reports, notifies"),
    Rule("hear", 1, PROSE, r"\bhears?\b|\bheard\b", "receives (heartbeats) from, is connected to"),
    Rule("owe", 1, PROSE, r"\bowe[sd]?\b|\bowing\b", "has unfinished messages; unfinished (NSQ: not FINished)"),
    Rule("comes-again", 1, PROSE, r"\bcom(?:es?|ing|e) (?:again|twice)\b|\bcame (?:again|twice)\b", "is redelivered; is a duplicate"),
    Rule("goes", 1, PROSE, r"\b(?:it|copy|copies|log|directory|file|job|topic|channel|extent|queue|mirror|remnant|manifest|which|segment) goes?\b",
         "is deleted, is removed, is freed"),
    Rule("go-on", 1, PROSE, r"\bg(?:o|oes|oing) on\b|\bwent on\b", "continue, resume"),
    Rule("stands", 1, PROSE, r"\bst(?:ands?|anding|ood)\b (?:in|at|on|there|beside|behind|before|by|under|first|once|apart)\b", "is in, is stored in, is at"),
    Rule("stood-still", 1, PROSE, r"\bst(?:ands?|ood|anding) still\b", "was paused (process pause)"),
    Rule("take-note", 1, PROSE, r"\b[Tt]akes? note\b", "record, store, handle"),
    Rule("anew", 1, PROSE, r"\banew\b", "again, from scratch; resync"),
    Rule("for-good", 1, PROSE, r"\bfor good\b", "permanently"),
    Rule("for-because", 1, PROSE, r", for (?:it|they|he|nobody|this|that|these|those|its|there)\b", "because"),
    Rule("but-for", 1, PROSE, r"\bbut for\b", "except for, except"),
    Rule("shall", 1, PROSE, r"\bshall\b", "must, will, should"),
    Rule("need-not", 1, PROSE, r"\bneed not\b", "does not have to"),
    Rule("any-more", 1, PROSE, r"\bany ?more\b", "no longer"),
    Rule("all-the-same", 1, PROSE, r"\ball the same\b", "anyway, still"),
    Rule("likewise", 1, PROSE, r"\blikewise\b", "repeat the noun; the same as ..."),
    Rule("at-hand", 1, PROSE, r"\bat hand\b", "current"),
    Rule("so-many", 1, PROSE, r"\bso many\b", "n, the given number of"),
    Rule("at-the-most", 1, PROSE, r"\bat the most\b", "at most"),
    Rule("for-ever", 1, PROSE, r"\bfor ever\b", "indefinitely, without limit"),
    Rule("each-time", 1, PROSE, r"\beach (?:\d[\d.,]* ?(?:s|ms|min|h|MiB)\b|second\b|minute\b|tick\b)", "every 5 s"),
    Rule("hand-out", 1, PROSE, r"\bhand(?:s|ed|ing)? out\b", "deliver"),
    Rule("under-way", 1, PROSE, r"\bunder way\b", "in progress, in flight"),
    Rule("wake-somebody", 1, "dt", r"\b[Ww]ake somebody\b", "Page the on-call engineer"),
    # Level 1: invented nouns, and two spellings of one word.
    Rule("remnant", 1, ALL + "f", r"[Rr]emnants?", "diverged copy; the log made of it: salvaged log (pg_rewind: diverged)"),
    Rule("take-in", 1, ALL + "f", r"\b(?:take[ns]?|taking|took) in\b|tak(?:e|en|ing)_in|TakenIn|take-in|taken-in", "salvage, salvaged"),
    Rule("parted", 1, ALL + "f", r"\bparted\b|_parted|parted_|Parted", "diverged (PostgreSQL timelines)"),
    Rule("set-aside", 1, PROSE + "n", r"\b(?:set|put) aside\b|(?:set|put)_aside|aside\b", "kept as a diverged copy; moved to ..."),
    Rule("word", 1, PROSE, r"\bwords? (?:about|holds?|of (?:the|a|its|progress))\b|\b(?:the|a|no) word (?:is|that|holds|durably)\b|\bhas the word\b",
         "member record, update, announcement (memberlist, gossip)", CLUSTER),
    Rule("vouch", 1, PROSE + "f", r"\bvouch(?:es|ed)?\b", "confirm"),
    Rule("fate", 1, ALL, r"\bfates?\b|(?<![a-z])Fate\b", "outcome"),
    Rule("verdict", 1, ALL, r"\bverdicts?\b|(?<![a-z])Verdict\b", "decision, result"),
    Rule("trouble", 1, ALL, r"\btroubles?\b|(?<![a-z])Trouble\b", "problem, issue"),
    Rule("story", 1, ALL + "f", r"(?<![a-z])stor(?:y|ies)(?![a-z])|(?<![a-z])Story", "trace (RabbitMQ: message tracing)"),
    Rule("census", 1, ALL, r"(?<![a-z])[Cc]ensus", "live-data scan (LFS: segment usage)"),
    Rule("portion", 1, ALL, r"(?<![a-z])portions?(?![a-z])|(?<![a-z])Portion", "batch, chunk, slice"),
    Rule("lane", 1, ALL + "f", r"(?<![a-z])lanes?(?![a-z])|Lane(?![a-z])", "queue: retry queue, delay queue"),
    Rule("look", 1, PROSE, r"\b(?:a|the|each|one|first|last|next|latest|earlier|this|long) looks?\b", "poll, check, snapshot, scan"),
    Rule("question", 1, ALL + "f", r"(?<![a-z])questions?(?![a-z])|(?<![a-z])Question", "request, query"),
    Rule("mend", 1, ALL + "f", r"(?<![a-z])mend(?:s|ed|ing)?(?![a-z])|(?<![a-z])Mend(?![a-z])", "fix, repair"),
    Rule("made-again", 1, PROSE, r"\b(?:is|are|was|were|makes?|made|making) (?:\w+ ){0,3}?again from\b|\bmade again\b|\bmakes? (?:a|the) lost node again\b", "rebuilt, recreated"),
    Rule("rehearse", 1, PROSE + "f", r"\brehears\w*", "failover drill, practice"),
    Rule("daemon-set", 1, PROSE, r"\b[Dd]aemon set\b", "message queue; set of daemons (a DaemonSet is a Kubernetes object)"),
    Rule("time-out", 1, PROSE, r"\btime-outs?\b", "timeout"),
    Rule("time-stamp", 1, PROSE, r"\btime stamps?\b", "timestamp"),
    Rule("de-dup", 1, PROSE, r"\bde-dup\w*", "deduplication"),
    Rule("log-in", 1, "dsct", r"\b(?:a|the|each|no|of) log-ins?\b", "login"),
    # Level 1: names that are pronouns, participles or moods. A name is a noun, or a verb with its object.
    Rule("name-told", 1, "n", r"(^|_)(told|tells?)(_|$)", "report_..., notify_..., last_reported, ..._status"),
    Rule("name-heard", 1, "n", r"(^|_)hear[ds]?(_|$)", "last_contact, on_heartbeat, is_reachable"),
    Rule("name-pronoun", 1, "n", r"(^|_)(nobody|somebody|everybody|anybody|whom|whoever|theirs|ours|those)(_|$)", "name the thing"),
    Rule("name-some", 1, "n", r"^some$|^some_|_some$", "..._batch, require_..."),
    Rule("name-mood", 1, "n", r"^_?(lasts|is_amid|anew|breathe|hurry|hasten|tend|be_patient|surprise|complain|let_go|fall_apart|go_on|says_yes|give_away|look_after|stood_still)$",
         "name the action or the state: split_run (fall_apart), is_busy (is_amid), min_duration (lasts), resync (anew), ..."),
    # Level 2: words of the field for concepts of the cluster, the log and the pages. Replacing them is a rename.
    Rule("takeover", 2, ALL + "f", r"\b[Tt]ake-?overs?\b|takeovers?|Takeovers?", "failover (PostgreSQL, Redis Cluster)"),
    Rule("adopt", 2, ALL + "f", r"\badopt(?:s|ed|ing|ion|er|ers)?\b|adopt|Adopt", "promote a replica; adopter: new leader (PostgreSQL: promote)"),
    Rule("mirror", 2, ALL + "f", r"mirrors?|Mirrors?", "replica (Kafka, RabbitMQ quorum queues, etcd)"),
    Rule("owner", 2, ALL, r"\b[Oo]wners?\b|_owners?\b|owners?_", "leader (Kafka, raft, RabbitMQ quorum queues)", CLUSTER),
    Rule("claim", 2, ALL + "f", r"\bclaim(?:s|ed|ing|ant)?\b|claim|Claim", "run for leader, candidate, election (raft)", CLUSTER),
    Rule("promise", 2, ALL, r"\bpromis(?:e|es|ed|ing)\b", "vote (raft)", CLUSTER),
    Rule("count-as", 2, PROSE, r"\b(?:followers?|nodes?|who|that|which) (?:of \S+ )?(?:that |who )?counts?\b", "in-sync replica, ISR (Kafka)", CLUSTER),
    Rule("stripe", 2, ALL + "f", r"stripes?|Stripes?", "shard (RabbitMQ sharding)"),
    Rule("home", 2, PROSE, r"\bhome (?:channel|topic|tube)\b|\bat home\b", "local shard"),
    Rule("give-up-log", 2, PROSE, r"\bg(?:ive|ives|ave|iven|iving) (?:up )?(?:the|a|its|that|this) log(?: up)?\b", "step down as leader (raft)", CLUSTER),
    Rule("wanted", 2, ALL, r"\b(?:un)?[Ww]anted\b", "live (LFS, Bitcask: live data)", STORAGE),
    Rule("damage", 2, PROSE, r"\b[Dd]amaged\b", "corrupt (Kafka, PostgreSQL); the noun damage stays"),
    Rule("place", 2, "sn", r"\b(?:page|place) (?:token|behind)\b|no such place|next_place", "page token"),
    Rule("figures", 2, PROSE, r"(?<![a-z])figures?(?![a-z])|(?<![a-z])Figures?", "counts, statistics, metrics (NSQ: stats)"),
    Rule("law", 2, "dsc", r"\b[Ll]aws?\b", "invariant, rule"),
    Rule("behind", 2, PROSE, r"\bbehind (?:the|a|that|it|this|them|which|each|its)\b", "after, past (keep: behind a proxy, bytes behind)"),
    Rule("beside", 2, PROSE, r"\bbesides?\b", "next to, in addition to, with"),
    Rule("proof", 2, "d", r"\bProof:", "move test names to the test map; cite tests in one table"),
    Rule("return-what", 2, "s", r"^Return (?:what|who|whom|where|when|how|why|since when|up to where|from where)\b", "Return the <noun> ..., with its unit"),
    # Level 3: advice. Many uses are right; read each one.
    Rule("answer", 3, ALL, r"\banswer(?:s|ed|ing)?\b", "response, respond, return (HTTP); reply (TCP)"),
    Rule("reader", 3, "dsct", r"\breaders?\b", "subscription (channel or tube); consumer; offset reader"),
    Rule("mark", 3, "dsc", r"\bmarks?\b", "watermark (Kafka), written or durable position"),
    Rule("room", 3, "dsct", r"\broom\b|\brooms\b", "space, capacity; component (package)"),
    Rule("that-of", 3, PROSE, r"\b(?:that|those) of\b", "repeat the noun"),
]  # fmt: skip


class Text(NamedTuple):
    """A piece of a file: its scope (see Rule), first line, and text."""

    scope: str
    line: int
    text: str


def blank_code(text: str) -> str:
    """Replace inline code by a letter of the same meaning to the grammar."""
    return re.sub(r"``[^`]*``|`[^`\n]*`", "X", text)


def of_markdown(source: str) -> Iterator[Text]:
    """Yield the lines of prose, without code blocks."""
    fenced = indented = False
    before = ""
    for number, line in enumerate(source.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            indented = (line.startswith("    ") and (indented or not before.strip())) or (indented and not line.strip())
            if not indented:
                yield Text("d", number, re.sub(r"\]\([^)\s]*\)", "]", blank_code(line)))  # without targets of links
        before = line


def of_python(source: str) -> Iterator[Text]:
    """Yield docstrings, strings with a space, comments, and each name that the file defines once. Raises SyntaxError."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    docstrings, inner, spans = set(), set(), []
    for node in nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.add(id(first.value))
                for number, line in enumerate(first.value.value.split("\n"), first.value.lineno):
                    yield Text("s", number, blank_code(line.strip()))
        if isinstance(node, ast.JoinedStr):
            inner |= {id(one) for one in node.values}
    for node in nodes:
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in inner:
            text = node.value if isinstance(node, ast.Constant) else _joined(node)
            if isinstance(text, str):
                spans.append((node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0))
                if id(node) not in docstrings and " " in text.strip():
                    yield Text("t", node.lineno, text)
    yield from comments(source, spans)
    names: dict[str, int] = {}
    for name, at in defined(nodes):
        names[name] = min(at, names.get(name, at))
    yield from (Text("n", at, name) for name, at in names.items())


def _joined(node: ast.JoinedStr) -> str:
    """Return the text of an f-string, with X for each value."""
    return "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)


def defined(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the names that a file gives to classes, functions, parameters, variables and attributes, with their lines."""
    for node in nodes:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno


def comments(source: str, spans: list[tuple[int, int, int, int]]) -> Iterator[Text]:
    """Yield the comments: what follows a # outside the strings at `spans` (line, column, end line, end column)."""
    by_line: dict[int, list[tuple[int, int]]] = {}
    for line, column, end_line, end_column in spans:
        for number in range(line, end_line + 1):
            begin, end = column if number == line else 0, end_column if number == end_line else 1 << 30
            by_line.setdefault(number, []).append((begin, end))
    for number, text in enumerate(source.split("\n"), 1):
        for match in re.finditer("#", text):
            at = len(text[: match.start()].encode())  # columns of ast count bytes
            if not any(begin <= at < end for begin, end in by_line.get(number, ())):
                yield Text("c", number, blank_code(text[match.end() :].strip()))
                break


def of_template(source: str) -> Iterator[Text]:
    """Yield the lines of a template, without tags and expressions."""
    for number, line in enumerate(source.split("\n"), 1):
        yield Text("t", number, re.sub(r"<[^>]*>|{[#%].*?[#%]}|{{.*?}}", " ", line))


READERS = {".md": of_markdown, ".py": of_python, ".html": of_template}


class Match(NamedTuple):
    """A match of a rule at a line of a file."""

    file: str
    line: int
    rule: Rule
    scope: str
    text: str


def regex(rule: Rule) -> str:
    """Return the regular expression of a rule. The case of letters matters in names only."""
    return f"(?:{rule.pattern})" if "n" in rule.scopes else f"(?i:{rule.pattern})"


class Checker:
    """The chosen rules, compiled."""

    def __init__(self, rules: list[Rule]) -> None:
        self._patterns = [(rule, re.compile(regex(rule))) for rule in rules]
        self._any = {  # by scope: one pattern for all of its rules, because most lines have no match at all
            scope: re.compile("|".join(regex(rule) for rule in rules if scope in rule.scopes) or "(?!)")
            for scope in "dsctnf"
        }

    def matches(self, file: str, source: str) -> list[Match]:
        """Return the matches in one file, in the order of lines. Raises SyntaxError."""
        lines = source.split("\n")
        chosen = [(rule, pattern) for rule, pattern in self._patterns if not rule.paths or file.startswith(rule.paths)]
        found = []
        for scope, line, text in (Text("f", 1, file), *READERS[Path(file).suffix](source)):
            if self._any[scope].search(text) is None or OK in lines[min(line, len(lines)) - 1]:
                continue
            for rule, pattern in chosen:
                if scope in rule.scopes:
                    found += [Match(file, line, rule, scope, match[0].strip()) for match in pattern.finditer(text)]
        return sorted(found, key=lambda one: (one.line, one.rule.name))


def tracked(repo: Path, paths: list[str]) -> list[str]:
    """Return the tracked files that are checked."""
    output = subprocess.run(
        ["git", "ls-files", "-z", "--", *paths], cwd=repo, capture_output=True, check=True, text=True
    )
    return [one for one in output.stdout.split("\0") if Path(one).suffix in READERS and not EXEMPT.search(one)]


def changed(repo: Path, since: str) -> dict[str, set[int]]:
    """Return the numbers of the lines of each file that were added or changed since a commit."""
    command = ["git", "diff", "--unified=0", "--no-color", "--no-prefix", since]
    output = subprocess.run(command, cwd=repo, capture_output=True, check=True, text=True, errors="replace").stdout
    found: dict[str, set[int]] = {}
    file = ""
    for line in output.split("\n"):
        if line.startswith("+++ "):
            file = line[4:]
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            found.setdefault(file, set()).update(range(first, first + count))
    return found


def read_budgets(path: Path) -> Counter[str]:
    """Return the budget of each rule."""
    rows = (line.split() for line in path.read_text().splitlines())
    return Counter({name: int(count) for count, name in rows})


_checker: tuple[Path, Checker]  # of a process of the pool


def _begin(repo: Path, chosen: set[str]) -> None:
    global _checker
    _checker = repo, Checker([rule for rule in RULES if rule.name in chosen])


def _matches_in(file: str) -> list[Match]:
    """Return the matches in a file of the repository. One that cannot be parsed has none, with a message."""
    repo, checker = _checker
    try:
        return checker.matches(file, (repo / file).read_text())
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        print(f"{file}: {error}", file=sys.stderr)
        return []


def main() -> int:
    """Print what the arguments ask for. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="files or directories (default: the whole repository)")
    parser.add_argument(
        "--repo", type=Path, default=Path(), help="a directory of the repository (default: the working directory)"
    )
    parser.add_argument(
        "--level", type=int, default=1, choices=(1, 2, 3), help="1: retired (default); 2: also renames; 3: also advice"
    )
    parser.add_argument("--rule", action="append", default=[], help="only this rule (may be repeated)")
    parser.add_argument("--since", default="", metavar="COMMIT", help="only lines added or changed since this commit")
    parser.add_argument("--count", action="store_true", help="print a count for each rule instead of each match")
    parser.add_argument(
        "--budgets", type=Path, metavar="FILE", help="fail if a rule has more matches than this file allows"
    )
    parser.add_argument(
        "--lower", action="store_true", help="write the matches there are into that file, where these are fewer"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.rule) - {rule.name for rule in RULES}
    if unknown:
        parser.error(f"unknown rule: {', '.join(sorted(unknown))}")
    chosen = [one for one in RULES if (one.name in arguments.rule if arguments.rule else one.level <= arguments.level)]
    only = changed(arguments.repo, arguments.since) if arguments.since else None
    files = [one for one in tracked(arguments.repo, arguments.paths) if only is None or one in only]
    with ProcessPoolExecutor(initializer=_begin, initargs=(arguments.repo, {one.name for one in chosen})) as pool:
        results = list(pool.map(_matches_in, files, chunksize=20))
    found = [one for matches in results for one in matches if only is None or one.line in only[one.file]]
    counts = Counter(one.rule.name for one in found)
    if arguments.count:
        print_counts(chosen, found)
        return 0
    if arguments.budgets is None:
        print_matches(found)
        return 1 if found else 0
    budgets = read_budgets(arguments.budgets)
    if arguments.lower:
        lines = [f"{min(counts[name], allowed)} {name}" for name, allowed in sorted(budgets.items())]
        arguments.budgets.write_text("".join(f"{line}\n" for line in lines if not line.startswith("0 ")))
    exceeded = counts - budgets
    print_matches([one for one in found if one.rule.name in exceeded])
    for name in exceeded:
        print(f"{name}: {counts[name]} matches, {budgets[name]} allowed in {arguments.budgets}", file=sys.stderr)
    return 1 if exceeded else 0


def print_matches(found: list[Match]) -> None:
    """Print a line for each match."""
    for one in found:
        print(f'{one.file}:{one.line}: [{one.rule.name}] "{one.text}" -> {one.rule.instead}')


def print_counts(chosen: list[Rule], found: list[Match]) -> None:
    """Print the number of matches of each rule by scope, and the sum."""
    by_scope = Counter((one.rule.name, one.scope) for one in found)
    counts = Counter(one.rule.name for one in found)
    for rule in sorted(chosen, key=lambda one: -counts[one.name]):
        docs, prose, texts, names = (sum(by_scope[rule.name, one] for one in part) for part in ("d", "sc", "t", "nf"))
        parts = f"docs {docs:4}  code {prose:4}  texts {texts:4}  names {names:4}"
        print(f"{counts[rule.name]:6} {rule.name:14} {parts}  {rule.instead}")
    print(f"{len(found):6} TOTAL")


if __name__ == "__main__":
    sys.exit(main())
