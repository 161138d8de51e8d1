"""`penstock top`: the topics with their rates, again and again; in a pipe, a table for each round.

On a terminal, keys change the order and the filter, hold the screen, and end it: see View.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from admin.nodes.merge import LONGEST_NAME
from admin.nodes.overview import TOTALS, columns_for, ordered, rated
from admin.nodes.views import Row, count, rate
from admin.terminal.arguments import add_command, duration
from admin.terminal.session import Session
from shared.counted import counted
from shared.terminal.commands import Commands, ExitCode, whole_number
from shared.terminal.output import Column, has_colors, numbers, print_rows, table
from shared.values import SECOND

RATES = "Rates are per second, and known from the second round on."
KEYS = {"d": "depth", "i": "rate_in", "o": "rate_out", "t": "drain", "b": "buried", "n": "name"}
HEADER = 3  # lines above the rows: sums, the headings, and room for the cursor
IN_A_PIPE = 20  # rows of a round
ALL = ("messages", "depth", "held", "buried", "channels", "in_flight", "drain")
TABLE = (
    Column("topic"), *numbers("depth"), Column("in", is_number=True), Column("out", is_number=True),
    Column("drain", is_number=True), *numbers("buried", "in_flight", "clients"),
)  # fmt: skip


@dataclass(slots=True)
class View:
    """The part of the counts that the screen shows, as the user chose it with keys."""

    order: str
    pattern: str = ""  # only topics whose names contain it
    is_typing: bool = False  # the user types the pattern
    is_held: bool = False  # until the next key
    is_over: bool = False

    def press(self, key: str) -> None:
        """Change what is shown as a key of the user asks for."""
        is_held, self.is_held = self.is_held, False
        if self.is_typing:
            self._type(key)
        elif key == "q":
            self.is_over = True
        elif key == "p":
            self.is_held = not is_held
        elif key == "/":
            self.is_typing, self.pattern = True, ""
        else:
            self.order = KEYS.get(key, self.order)

    def _type(self, key: str) -> None:
        if key in "\r\n":
            self.is_typing = False
        elif key == "\x1b":
            self.is_typing, self.pattern = False, ""
        elif key in "\x7f\b":
            self.pattern = self.pattern[:-1]
        elif key.isprintable():
            self.pattern = (self.pattern + key)[:LONGEST_NAME]

    @property
    def described(self) -> str:
        """The filter and the pause, for the first line; "" if there are none."""
        shown = [f"/{self.pattern}" + "_" * self.is_typing] if self.pattern or self.is_typing else []
        return "  ".join([*shown, *(["held: press a key"] if self.is_held else [])])


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    what = "show the topics with their rates, again and again"
    top = add_command(commands, "top", _top, what, "top\ntop orders --sort drain --every 5s\ntop -n 3 --json")
    top.add_argument("pattern", nargs="?", default="", metavar="TEXT", help="only topics whose names contain it")
    top.add_argument(
        "--sort", choices=tuple(KEYS.values()), default="depth", metavar="ORDER", help=", ".join(KEYS.values())
    )
    top.add_argument(
        "--every", type=duration, default="2s", metavar="DURATION", help="time between two rounds (default: 2s)"
    )
    top.add_argument("-n", "--rounds", type=whole_number(1, 1_000_000_000), metavar="N", help="end after N rounds")
    keys = ", ".join(f"{key} {order}" for key, order in KEYS.items())
    top.epilog = f"{top.epilog}\nKeys: {keys}; / filter by name, p hold the screen, q quit. {RATES}\n"


async def _top(session: Session, arguments: argparse.Namespace) -> int:
    await session.producers()
    is_live = sys.stdout.isatty() and sys.stdin.isatty() and not arguments.json
    pressed: asyncio.Queue[str] = asyncio.Queue()
    view, done = View(arguments.sort, arguments.pattern), 0
    with _keys(pressed) if is_live else _no_keys():
        while not view.is_over:
            if not view.is_held:
                rows, totals = await _round(session, view, _room() if is_live else IN_A_PIPE)
                done += 1
            _show(rows, totals, session, arguments, view, is_live=is_live)
            if done == arguments.rounds:
                break
            if key := await _next_key(pressed, None if view.is_held else arguments.every / SECOND):
                view.press(key)
    return ExitCode.DONE


async def _round(session: Session, view: View, most: int) -> tuple[list[Row], dict[str, int]]:
    """Return the first rows of a view, with rates once there was a round before, and the sums of all topics."""
    session.missing.clear()
    order = view.order
    columns = tuple(dict.fromkeys((*ALL, *columns_for(order))))
    cached = await session.queries.overview(columns)
    session.take(cached.now)
    names = ordered(cached.now.names, cached.now, cached.before, cached.seconds, view.pattern, order, order != "name")
    shown = names[: max(1, most)]
    rows = await session.queries.rows(shown)
    return rated(shown, rows.now, rows.before, rows.seconds), cached.now.totals


def _show(
    rows: list[Row],
    totals: dict[str, int],
    session: Session,
    arguments: argparse.Namespace,
    view: View,
    *,
    is_live: bool,
) -> None:
    shown = [_row(one, as_json=arguments.json) for one in rows]
    if not is_live:
        print_rows(shown, TABLE, as_json=arguments.json, nothing="" if session.missing else "no topics")
        sys.stdout.flush()
        return
    size = shutil.get_terminal_size()
    sums = "  ".join(f"{name.replace('_', ' ')} {count(totals[name])}" for name in TOTALS if name != "channels")
    missing = f"{counted(len(session.missing), 'node')} missing" if session.missing else ""
    first = "  ".join(filter(None, (view.described, missing, sums)))
    lines = [first[: size.columns], *table(shown, TABLE, size.columns, has_colors(sys.stdout))]
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + "\x1b[J")
    sys.stdout.flush()


def _row(one: Row, *, as_json: bool) -> dict[str, Any]:
    rates = (one.rate_in, one.rate_out)
    first, second = rates if as_json else map(rate, rates)
    return {
        "topic": one.name, "depth": one.depth, "in": first, "out": second, "drain": one.drain, "buried": one.buried,
        "in_flight": one.in_flight, "clients": one.clients,
    }  # fmt: skip


def _room() -> int:
    return shutil.get_terminal_size().lines - HEADER


async def _next_key(pressed: asyncio.Queue[str], seconds: float | None) -> str:
    """Return the next key, or "" if none is pressed in time. `seconds`: None: wait for one."""
    try:
        return await asyncio.wait_for(pressed.get(), seconds)
    except TimeoutError:
        return ""


@contextmanager
def _no_keys() -> Iterator[None]:
    yield


@contextmanager
def _keys(pressed: asyncio.Queue[str]) -> Iterator[None]:
    """Read keys without waiting for a line, on another screen, until the context is left."""
    import termios
    import tty

    file, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(file)
    tty.setcbreak(file)

    def read() -> None:
        for key in os.read(file, 64).decode("ascii", "replace") or "q":
            pressed.put_nowait(key)

    loop.add_reader(file, read)
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        loop.remove_reader(file)
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
        termios.tcsetattr(file, termios.TCSADRAIN, before)
