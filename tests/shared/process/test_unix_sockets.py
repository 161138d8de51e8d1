"""Unix sockets: addresses, the file and its mode, and the user of a connection."""

import os
import pwd
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from shared.checks import accidental_path, not_dialable, obstructed
from shared.process import unix_sockets
from shared.process.listen import Address, ListenError, is_loopback, listen, parse_address
from shared.process.unix_sockets import BY_UMASK, NOBODY, UnixAddress, bind_unix, peer_user, user_number
from tests.cases import each

ROOT = pwd.getpwuid(0).pw_name


@each("text, address", [
    ("unix:/run/a.sock", UnixAddress("/run/a.sock")), ("unix:./a.sock", UnixAddress("./a.sock")),
    ("unix:/run/a:1", UnixAddress("/run/a:1")), ("unix:/a?mode=660", UnixAddress("/a", 0o660)),
    ("unix:/a?mode=0600", UnixAddress("/a", 0o600)), ("unix:/a?user=7&group=8", UnixAddress("/a", BY_UMASK, 7, 8)),
    (f"unix:/a?group=0&user={ROOT}&mode=777", UnixAddress("/a", 0o777, 0, 0)),
])  # fmt: skip
def test_addresses(text: str, address: UnixAddress) -> None:
    assert parse_address(text) == Address(path=address.path, unix=address)
    assert is_loopback(text)


def test_who_may_be_named_and_checks_of_addresses(tmp_path: Path) -> None:
    assert parse_address("unix:4150") == Address("unix", 4150)
    assert parse_address("/a?mode=660") == Address(path="/a?mode=660")
    assert (user_number(ROOT), user_number("12345")) == (0, 12345)
    assert (obstructed(f"unix:{tmp_path}/a?mode=600"), accidental_path("unix:/a")) == ("", "")
    assert obstructed("unix:/nonexistent/a") == "must be a directory that exists: no such file or directory"
    assert not_dialable("unix:/run/a.sock") == ""
    assert not_dialable("unix:/run/a.sock?mode=600") == "mode and owner are for addresses to listen on"
    assert not_dialable("unix:/run/") == "expected unix:/path"


@each("text, why", [
    ("unix:", "expected unix:/path"), ("unix:a.sock", "expected unix:/path"), ("unix:/run/", "expected unix:/path"),
    ("unix:?mode=660", "expected unix:/path"), ("unix:/a?modes=660", "unknown key 'modes': expected mode, user, group"),
    ("unix:/a?mode=660&", "unknown key '': expected mode, user, group"),
    ("unix:/a?mode=660&mode=600", "mode is given twice"),
    ("unix:/a?mode=", "mode '': expected three octal digits, such as 660"),
    ("unix:/a?mode=668", "mode '668': expected three octal digits, such as 660"),
    ("unix:/a?mode=4755", "mode '4755': expected three octal digits, such as 660"),
    ("unix:/a?user=no-such-user", "unknown user 'no-such-user'"), ("unix:/a?user=", "unknown user ''"),
    ("unix:/a?user=a\0b", "unknown user 'a\\x00b'"), ("unix:/a?user=-1", "unknown user '-1'"),
    ("unix:/a?user=4294967295", "invalid user 4294967295"), ("unix:/a?group=no-such-group", "unknown group 'no-such-group'"),
])  # fmt: skip
def test_bad_addresses(text: str, why: str) -> None:
    with pytest.raises(ListenError) as raised:
        parse_address(text)
    assert str(raised.value) == f"listen ({text}) failed - {why}"
    assert (obstructed(text), accidental_path(text)) == (why, "")


@pytest.mark.process
@each("mask, form, mode", [
    *((mask, form, 0o777 & ~mask) for mask in (0o000, 0o007, 0o022, 0o077) for form in ("{}", "unix:{}")),
    *((0o077, f"unix:{{}}?mode={mode:o}", mode) for mode in (0o600, 0o660, 0o666)),
])  # fmt: skip
def test_the_mode_or_else_the_mask_decides(tmp_path: Path, mask: int, form: str, mode: int) -> None:
    path = tmp_path / "a.sock"
    before = os.umask(mask)
    try:
        with closing(listen(form.format(path))) as listener:
            assert stat.S_IMODE(path.stat().st_mode) == mode
            assert (listener.address, listener.port, listener.is_loopback) == (str(path), -1, True)
        assert not path.exists()
        assert os.umask(mask) == mask
    finally:
        os.umask(before)


@pytest.mark.process
def test_no_client_can_connect_before_it_listens(tmp_path: Path) -> None:
    address = UnixAddress(str(tmp_path / "a.sock"))
    with bind_unix(address), socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(address.path)


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_file_has_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with closing(listen(f"unix:{path}?mode=660&user=12345&group=23456")):
        found = path.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 23456, 0o660)
    with closing(listen(f"unix:{path}?group=23456")):
        assert (path.stat().st_uid, path.stat().st_gid) == (os.geteuid(), 23456)


@pytest.mark.process
def test_a_file_that_cannot_be_given_away_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(unix_sockets.os, "chown", refuse)
    text = f"unix:{tmp_path}/a.sock?user=0"
    with pytest.raises(ListenError) as raised:
        listen(text)
    assert str(raised.value) == f"listen ({text}) failed - operation not permitted"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_whose_a_connection_is(tmp_path: Path) -> None:
    with closing(listen(f"unix:{tmp_path}/a.sock")) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(listener.address)
        listener.socket.setblocking(True)
        accepted, _ = listener.socket.accept()
        with accepted:
            assert peer_user(accepted) == os.geteuid()
        assert peer_user(accepted) == NOBODY  # it is closed
