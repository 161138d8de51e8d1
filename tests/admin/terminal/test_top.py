"""`penstock top` in a pipe and on a terminal, over two nodes in the test's process."""

import json
import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from admin.terminal.top import View
from tests.admin.terminal.program import Terminal, post
from tests.local_node import LocalNode


def test_a_round_is_a_table_sorted_by_an_order(nodes: list[LocalNode], terminal: Terminal) -> None:
    assert terminal("top", "-n", "1") == (0, "", "no topics\n")
    for topic, bodies in (("small", 1), ("large", 3)):
        for number in range(bodies):
            post(nodes[number % 2], "/pub", b"x", topic=topic)
    code, out, error = terminal("top", "-n", "1")
    head, first, second = out.splitlines()
    assert (code, error, head.split()[:4]) == (0, "", ["TOPIC", "DEPTH", "IN", "OUT"])
    assert (first.split()[:4], second.split()[:2]) == (["large", "3", "-", "-"], ["small", "1"])
    assert [row["topic"] for row in terminal.rows("top", "-n", "1", "--sort", "name")] == ["large", "small"]


def test_rates_are_known_from_the_second_round_on(nodes: list[LocalNode], terminal: Terminal) -> None:
    post(nodes[0], "/pub", b"x", topic="t")
    code, out, _ = terminal("top", "-n", "2", "--json", "--every", "1ms")
    rounds = [json.loads(line) for line in out.splitlines()]
    assert (code, len(rounds), rounds[0]["in"]) == (0, 2, None)


def pressed(view: View, keys: str) -> View:
    for key in keys:
        view.press(key)
    return view


def test_keys_change_the_order_and_the_filter() -> None:
    assert pressed(View("depth"), "b").order == "buried"
    assert pressed(View("depth"), "?").order == "depth"
    assert pressed(View("depth"), "q").is_over
    assert pressed(View("depth"), "/order").described == "/order_"
    assert pressed(View("depth"), "/orderx\x7fsq\r") == View("depth", "ordersq")  # no command while it is typed
    assert pressed(View("depth", "old"), "/new\x1b") == View("depth")
    assert len(pressed(View("depth"), "/" + "a" * 1000).pattern) < 300


def test_the_screen_is_held_until_the_next_key() -> None:
    view = pressed(View("depth"), "p")
    assert (view.is_held, view.described) == (True, "held: press a key")
    assert not pressed(view, "p").is_held
    assert pressed(View("depth"), "pn") == View("name")


@contextmanager
def keyboard(monkeypatch: pytest.MonkeyPatch, *steps: tuple[str, str]) -> Iterator[list[str]]:
    """Let the command have a terminal of 40 columns, where a user waits for each text and presses the key then.

    Yields the list of what the terminal has shown up to each text.
    """
    user, terminal = pty.openpty()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("NO_COLOR", "1")
    screens: list[str] = []

    def work() -> None:
        shown = ""
        for text, key in steps:
            while text not in shown:
                shown += os.read(user, 4096).decode()
            before, _, shown = shown.partition(text)
            screens.append(before)
            os.write(user, key.encode())

    thread = threading.Thread(target=work, daemon=True)
    with (
        open(terminal, closefd=False) as stdin,
        open(terminal, "w", closefd=False) as stdout,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", stdout)
        thread.start()
        yield screens
    thread.join()
    os.close(user)
    os.close(terminal)


def test_a_terminal_of_40_columns(nodes: list[LocalNode], terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        post(nodes[0], "/mpub", b"\n".join([b"x"] * (number + 1)), topic=f"{number}-topic-with-a-long-name")
    steps = (("4-topi", "n"), ("0-topi", "/"), ("/_", "7"), ("/7_", "\r"), ("/7  ", "p"), ("held", "q"))
    with keyboard(monkeypatch, *steps) as screens:
        code, out, error = terminal("top", "--every", "1h")
    assert (code, out, error) == (0, "", "")
    assert len(screens) == len(steps)
    lines = [line for screen in screens for line in screen.replace("\x1b[K", "").replace("\r", "").split("\n")]
    assert [line for line in lines if len(line.rpartition("\x1b[H")[2]) > 40] == []
    assert "\x1b[?1049h" in screens[0]  # on a screen of its own


def test_ctrl_c_restores_the_terminal(
    nodes: list[LocalNode], terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    import termios

    post(nodes[0], "/pub", b"x", topic="t")
    with keyboard(monkeypatch) as _:
        before = termios.tcgetattr(sys.stdin.fileno())
        terminal.network.requests_left = 3
        code, _, error = terminal("top", "--every", "1h")
        assert (code, error) == (130, "")
        assert termios.tcgetattr(sys.stdin.fileno()) == before
