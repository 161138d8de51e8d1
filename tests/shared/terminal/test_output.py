"""Tables fit the terminal, and colors are for those who see them."""

import io

import pytest

from shared.terminal.output import Column, body_line, body_text, has_colors, numbers, plain, print_rows, table

COLUMNS = (Column("topic"), *numbers("depth", "messages"), Column("node"))
ROWS = [
    {"topic": "orders", "depth": 1234, "messages": 5, "node": "10.0.0.1:4151"},
    {"topic": "a" * 40, "depth": None, "messages": 1_000_000, "node": ""},
]


def test_without_a_limit_nothing_is_cut() -> None:
    first, second, third = table(ROWS, COLUMNS)
    assert first.split() == ["TOPIC", "DEPTH", "MESSAGES", "NODE"]
    assert second == f"orders{' ' * 36}1,234          5  10.0.0.1:4151"
    assert third == f"{'a' * 40}      -  1,000,000  -"


def test_a_table_fits_its_terminal_at_any_width() -> None:
    for width in range(20, 90):
        lines = list(table(ROWS, COLUMNS, width))
        assert max(map(len, lines)) <= width, width
    head, _, row = table(ROWS, COLUMNS, 38)
    assert head.endswith("+1")
    assert row.startswith("aaaaa")
    assert "..." in row


def test_control_characters_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
    assert (plain(True), plain(None), plain(1234)) == ("yes", "-", "1,234")
    for name in ("a\x1b[2J", "a\u202e", ""):  # in a column of texts only
        assert list(table([{"topic": "b"}, {"topic": name}], COLUMNS[:1]))[2] == plain(name)


def test_a_body_on_a_terminal_is_escaped_and_in_a_pipe_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "a\tzw\u00f6lf\n\x1b[2J\x9b".encode() + b"\xff"
    for is_terminal, encoding, shown in (
        (False, "utf-8", body), (True, "utf-8", b"a\tzw\xc3\xb6lf\n\\x1b[2J\\x9b\\xff"),
        (True, "ascii", b"a\tzw\\xf6lf\n\\x1b[2J\\x9b\\xff"),
    ):  # fmt: skip
        screen = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(screen, "isatty", lambda is_terminal=is_terminal: is_terminal, raising=False)
        monkeypatch.setattr("sys.stdout", screen)
        assert body_line(body) == shown + b"\n"
        assert body_line(b"", b"\0") == b"\0"
        assert (body_text("\x07") == "\x07") is not is_terminal


def test_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert (has_colors(Screen()), has_colors(io.StringIO())) == (True, False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colors(Screen())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colors(Screen())
    red = Column("depth", style=lambda row: "red" if row["depth"] else "")
    assert list(table(ROWS, [red], 80, colors=True))[1:] == ["\x1b[31m1,234\x1b[0m", "-"]


def test_json_has_a_row_on_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS[:1], COLUMNS, as_json=True)
    assert capsys.readouterr().out == '{"topic": "orders", "depth": 1234, "messages": 5, "node": "10.0.0.1:4151"}\n'
    print_rows([], COLUMNS, as_json=False, nothing="no topics")
    assert capsys.readouterr().err == "no topics\n"
