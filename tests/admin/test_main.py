"""The start of nsqadmin: an error in its options is one line, and a bug of the running daemon is none."""

from collections.abc import Callable

import pytest

from admin import daemon, main
from admin.options import AdminOptions
from shared.process.daemon import StartError

OPTIONS = AdminOptions(http_address="127.0.0.1:0", nsqd_http_address=("127.0.0.1:1",))


def fail() -> None:
    raise ValueError("odd")


@pytest.mark.process
def test_an_error_before_the_daemon_serves_is_one_of_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "prepare", lambda *_: fail())
    with pytest.raises(StartError, match=r"^failed to instantiate nsqadmin - odd$"):
        main._serve(OPTIONS)


@pytest.mark.process
def test_an_error_while_the_daemon_serves_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    serve: Callable[[], None] = fail
    monkeypatch.setattr(daemon, "prepare", lambda *_: serve)
    with pytest.raises(ValueError, match=r"^odd$"):
        main._serve(OPTIONS)
