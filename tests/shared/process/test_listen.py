"""Addresses and listening sockets. These are about sockets, so unlike other unit tests they open some, on port 0."""

import errno
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from shared.process.listen import Address, ListenError, bind_shared, display, is_loopback, listen, parse_address
from tests.cases import each


@each("text, address", [
    ("127.0.0.1:4150", Address("127.0.0.1", 4150)), (":4150", Address("", 4150)), ("localhost:0", Address("localhost", 0)),
    ("127.0.0.1:", Address("127.0.0.1", 0)), ("[::1]:4150", Address("::1", 4150)), ("[::]:4150", Address("::", 4150)),
    ("/run/nsqd.sock", Address(path="/run/nsqd.sock")), ("nsqd.sock", Address(path="nsqd.sock")),
    ("/run/odd:1", Address(path="/run/odd:1")),
])  # fmt: skip
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address


@each("text, why", [
    ("", "missing address"), ("127.0.0.1", "missing port"), ("::1", "missing port"), ("[::1]", "missing port"),
    ("127.0.0.1:65536", "invalid port 65536"), ("127.0.0.1:no-such-service", "unknown port no-such-service"),
    ("127.0.0.1:-1", "unknown port -1"),
])  # fmt: skip
def test_bad_addresses(text: str, why: str) -> None:
    with pytest.raises(ListenError) as raised:
        parse_address(text)
    assert str(raised.value).startswith(f"listen ({text}) failed - {why}")


def test_what_only_this_machine_reaches_and_how_addresses_are_shown() -> None:
    assert all(map(is_loopback, ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "LOCALHOST:1", "/a.sock"]))
    assert not any(map(is_loopback, [":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1", "[fe80::1]:1"]))
    assert display("127.0.0.1", 5) == "127.0.0.1:5"
    assert display("::1", 5) == "[::1]:5"
    assert display("::ffff:10.0.0.1", 5) == "10.0.0.1:5"


@pytest.mark.process
def test_hosts_and_ports_that_are_listened_at() -> None:
    with closing(listen("127.0.0.1:0")) as listener:
        assert listener.port > 0
        assert listener.address == f"127.0.0.1:{listener.port}"
        assert listener.is_loopback
        assert not listener.socket.getblocking()
        socket.create_connection(("127.0.0.1", listener.port)).close()
    with closing(listen("localhost:0")) as listener:
        assert listener.address.startswith("127.")
    with closing(listen(":0")) as listener:
        assert not listener.is_loopback
        socket.create_connection(("127.0.0.1", listener.port)).close()


@pytest.mark.process
def test_ipv6() -> None:
    try:
        listener = listen("[::1]:0")
    except ListenError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with closing(listener):
        assert listener.address == f"[::1]:{listener.port}"
        assert listener.is_loopback


@pytest.mark.process
def test_a_taken_port_names_its_holder_and_is_free_again_after_close() -> None:
    with closing(listen("127.0.0.1:0")) as first:
        with pytest.raises(ListenError) as raised:
            listen(first.address)
        assert str(raised.value).startswith(f"listen ({first.address}) failed - address already in use")
        if Path("/proc/net/tcp").exists():
            assert f"(pid {os.getpid()})" in str(raised.value)
    first = listen("127.0.0.1:0")
    first.close()
    first.close()
    listen(first.address).close()


@each("text", ["no-such-host.invalid:0", "a..b:0", "x" * 70 + ":0"])
def test_a_host_that_does_not_resolve(text: str) -> None:
    with pytest.raises(ListenError, match="lookup"):
        listen(text)


@pytest.mark.process
def test_what_cannot_be_listened_at(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match=os.strerror(errno.EADDRNOTAVAIL).lower()):
        listen("192.0.2.1:0")
    for path in (tmp_path / "missing" / "a.sock", tmp_path / ("x" * 200)):
        with pytest.raises(ListenError):
            listen(str(path))


@pytest.mark.process
def test_a_socket_file_is_replaced_only_if_it_is_stale(tmp_path: Path) -> None:
    path = str(tmp_path / "nsqd.sock")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(path)
    with closing(listen(path)):
        with pytest.raises(ListenError, match="address already in use"):
            listen(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)

    precious = tmp_path / "precious"
    precious.write_text("data")
    with pytest.raises(ListenError, match="address already in use"):
        listen(str(precious))
    assert precious.read_text() == "data"


@pytest.mark.process
def test_a_later_daemons_socket_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "nsqd.sock"
    first = listen(str(path))
    path.rename(tmp_path / "moved")
    with closing(listen(str(path))):
        first.close()
        assert path.exists()


# shared ports


@pytest.mark.process
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", ""])
def test_connections_go_to_sockets_that_listen(host: str) -> None:
    with closing(bind_shared(f"{host}:0")) as first, closing(bind_shared(f"{host}:{first.port}")) as second:
        target = (host.strip("[]") or "127.0.0.1", first.port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(target)
        second.socket.listen()
        clients = [socket.create_connection(target) for _ in range(20)]
        accepted = [second.socket.accept()[0] for _ in clients]
        for sock in (*clients, *accepted):
            sock.close()


@pytest.mark.process
def test_a_port_is_not_shared_with_a_process_that_did_not_ask_for_it() -> None:
    with closing(listen("127.0.0.1:0")) as alone, pytest.raises(ListenError) as raised:
        bind_shared(alone.address)
    assert "address already in use: held by " in raised.value.why
    assert raised.value.why.endswith("; a port is shared only by processes of one user that all ask for it")
    with closing(bind_shared("127.0.0.1:0")) as shared:
        shared.socket.listen()
        with pytest.raises(ListenError, match="address already in use"):
            listen(shared.address)


@pytest.mark.process
@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser can become another user")
def test_a_port_is_not_shared_with_another_user() -> None:
    with closing(bind_shared("127.0.0.1:0")) as mine:
        mine.socket.listen()  # Linux looks at the users once one of them listens
        child = os.fork()
        if not child:
            os.setuid(65534)
            try:
                bind_shared(mine.address)
            except ListenError as error:
                os._exit(1 if "a port is shared only by" in error.why else 2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_where_ports_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ListenError, match="a unix socket cannot be shared"):
        bind_shared("/run/nsqd.sock")
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    with pytest.raises(ListenError, match="this platform has no SO_REUSEPORT"):
        bind_shared("127.0.0.1:4149")
