"""The page docs/reference/http-routes.md: every HTTP route, from route tables and docstrings of the handlers' modules."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from unittest.mock import MagicMock

from admin.users.roles import NEEDED
from docs.markdown import page, table_row
from docs.route_table import NSQADMIN
from lookupd.http import Handlers
from nsqd.http import topic_config
from nsqd.http.publish import ATTRIBUTES
from nsqd.http.routes import routes as nsqd_routes
from nsqd.options import NsqdOptions
from shared.http.argument import REQUIRED, Argument
from shared.http.route import Need, Route
from shared.topic_config import SETTINGS

# Arguments that several routes take together: the heading below which they are described
TOGETHER = {
    "[settings](#topicconfig)": frozenset(SETTINGS),
    "[those below](#pub-mpub)": frozenset(one.name for one in ATTRIBUTES),
}


def routes() -> str:
    """Return the page of all HTTP routes."""
    node = MagicMock(options=dataclasses.replace(NsqdOptions(), debug_routes=True, cluster_address=":4170"))
    nsqd, lookupd = nsqd_routes(node), Handlers(*[MagicMock()] * 5).routes()
    parts = [
        "# HTTP routes\n",
        "Arguments are in the query, unless the table says otherwise; `?` marks those that may be left out. A route needs the\n"
        'right in the third column where there is an auth file. Errors are JSON, `{"message":"TEXT"}`;\n'
        "[errors](errors.md) lists the texts.\n",
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
            parts += [*(table_row(f"`{name}`", one.expected, one.about) for name, one in SETTINGS.items()), ""]
    parts += ["## nsqlookupd\n", *_table(lookupd)]
    return page([*parts, *_routes_of_nsqadmin(), ""])


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
        parts.append(table_row(f"`{method} {path}`", _words(arguments), NEEDED[f"{method} {path}"].words, what))
    return parts


def _common(paths: list[str]) -> str:
    """Return the beginnings of the paths, as a heading."""
    return ", ".join(
        dict.fromkeys(path if path.count("/") < 2 else f"{path[: path.rindex('/')]}/..." for path in paths)
    )


def _table(routes: Iterable[Route]) -> Iterator[str]:
    yield "| route | arguments | needs | what it does |\n|---|---|---|---|"
    for cells, alike in groupby(routes, lambda one: (_arguments(one.arguments), _need(one.need), one.does)):
        yield table_row(", ".join(f"`{one.key}`" for one in alike), *cells)
    yield ""


def _need(need: Need) -> str:
    """Return the right that a route needs, in words."""
    return need.verb.name.lower() if need.verb is not None else "" if need.is_open else "any"


def _arguments(declared: Sequence[Argument]) -> str:
    """Return the arguments of a route: their names, which of them may be left out, and what values must be."""
    cells, names = dict[str, None](), {one.name for one in declared}
    for one in declared:
        if link := next((link for link, together in TOGETHER.items() if one.name in together <= names), ""):
            cells[link] = None
        else:
            bounds = re.sub(r"^0 to \d{16,}$", "a number", one.expected).replace("a name", "")
            cells[f"`{one.name}`{'' if one.default is REQUIRED else '?'}{f' ({bounds})' if bounds else ''}"] = None
    return ", ".join(cells)


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
        r" \(\w+\.py\)|^    (?:GET|POST) +/\S+(?: {2,}(?![ {]).*)?$(?!\n {8})", re.MULTILINE
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
