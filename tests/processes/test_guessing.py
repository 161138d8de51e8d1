"""Attacks on the proofs themselves, on real daemons: odd tokens, many wrong ones, odd auth files, old certificates."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import greenstalk
import httpx
import pytest
import trustme

from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES
from shared.auth.tokens import digest
from tests.certificates import Authority
from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, run, sized
from tests.processes.test_beanstalkd import beanstalk
from tests.processes.test_nsqd_hostile import rss

pytestmark = pytest.mark.process

RIGHT, WRONG = (b"pst_" + name.ljust(43, b"x") for name in (b"right", b"wrong"))
HERE, OTHER = "127.0.0.1", "127.0.0.2"  # both are this machine
MANY = 10_000
HUGE = 16 * 1024 * 1024  # bytes
MOST_GROWTH = 80 * 1024 * 1024  # bytes: far less than one huge token for each port
IDENTIFY = b'{"broadcast_address":"a","tcp_port":1,"http_port":1,"version":"1","auth_token":"%b"}'
ROLE = '[[role]]\nname = "all"\nrules = [{ verbs = ["publish", "consume", "stats", "register"] }]\n'
CERTIFICATE = '[[certificate]]\nname = "billing"\nsubject = "CN=billing*,OU=*,O=*"\nroles = ["all"]\n'


def write(path: Path, *tokens: bytes, more: str = "") -> None:
    """Put an auth file with these tokens in place, at once."""
    entries = [f'[[token]]\nname = "n"\nsha256 = "{digest(one)}"\nroles = ["all"]\n' for one in tokens]
    new = path.with_suffix(".new")
    new.write_text(ROLE + "".join(entries) + more)
    new.chmod(0o600)
    new.rename(path)


@contextlib.contextmanager
def guarded(path: Path, *flags: str) -> Iterator[Daemon]:
    """An nsqd with all ports and an auth file."""
    write(path / "auth.toml", RIGHT)
    ports = ("-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0")
    given = ("-auth-file", str(path / "auth.toml"))
    with nsqd(path / "data", *given, *ports, *flags, listens=("TCP", "HTTP", "DISQUE")) as node:
        yield node


def place_of(daemon: Daemon, name: str) -> tuple[str, int]:
    if name == "BEANSTALK":
        return beanstalk(daemon)
    host, _, port = daemon.addresses[name].rpartition(":")
    return host, int(port)


def connect(daemon: Daemon, name: str, source: str = HERE) -> socket.socket:
    return socket.create_connection(place_of(daemon, name), 30, (source, 0))


def say(daemon: Daemon, name: str, data: bytes, source: str = HERE) -> bytes:
    """Send bytes, and an end but for HTTP, from an address, and return what comes."""
    with connect(daemon, name, source) as sock:
        sender = threading.Thread(
            target=_send, args=(sock, data, name != "HTTP")
        )  # the daemon may answer before all is sent
        sender.start()
        said = b""
        with contextlib.suppress(ConnectionError):
            while part := sock.recv(65536):
                said += part
        sock.close()
        sender.join()
    return said


def _send(sock: socket.socket, data: bytes, ends: bool) -> None:
    with contextlib.suppress(OSError):  # the daemon has closed
        sock.sendall(data)
        if ends:
            sock.shutdown(socket.SHUT_WR)


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def nsq_is_known(node: Daemon, secret: bytes, source: str = HERE) -> bool:
    said = say(node, "TCP", b"  V2AUTH\n" + sized(secret), source)
    assert b"E_" in said or b'"identity"' in said
    return b'"identity"' in said


def beanstalk_is_known(node: Daemon, secret: bytes, source: str = HERE) -> bool:
    said = say(node, "BEANSTALK", b"auth %b\r\n" % secret, source)
    assert said
    return said.startswith(b"AUTHORIZED")


def disque_is_known(node: Daemon, secret: bytes, source: str = HERE) -> bool:
    said = say(node, "DISQUE", b"*2\r\n" + bulk(b"AUTH") + bulk(secret), source)
    assert said
    return said.startswith(b"+OK")


def http_is_known(node: Daemon, secret: bytes, source: str = HERE) -> bool:
    head = b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
    said = say(node, "HTTP", head + secret + b"\r\n\r\n", source)
    assert said.startswith(b"HTTP/1.1 ") or len(secret) == HUGE // len(RIGHT) * len(
        RIGHT
    )  # the reset may overtake the 400
    return said.startswith(b"HTTP/1.1 200 ")


def lookupd_is_known(lookupd: Daemon, secret: bytes, source: str = HERE) -> bool:
    said = say(lookupd, "TCP", b"  V1IDENTIFY\n" + sized(IDENTIFY % secret), source)
    assert said
    return b"E_" not in said


Known = Callable[..., bool]
NSQD: dict[str, Known] = {
    "nsq": nsq_is_known,
    "beanstalk": beanstalk_is_known,
    "disque": disque_is_known,
    "http": http_is_known,
}
ODD = {
    "truncated": RIGHT[:-1],
    "twice": RIGHT * 2,
    "with a NUL": RIGHT + b"\0",
    "with a NUL within": RIGHT[:20] + b"\0" + RIGHT[20:],
    "with an odd byte": b"\xff" + RIGHT[1:],
    "surrogates": b"\xed\xa0\x80" + RIGHT[3:],
    "upper case": RIGHT.upper(),
    "empty": b"",
    "giant": RIGHT * (HUGE // len(RIGHT)),
}


def test_odd_tokens_are_refused_and_cost_no_memory(tmp_path: Path) -> None:
    with guarded(tmp_path) as node, Daemon("nsqlookupd", "-auth-file", str(tmp_path / "auth.toml")) as lookupd:
        daemons = [(node, known) for known in NSQD.values()] + [(lookupd, lookupd_is_known)]
        before = {daemon: rss(daemon) for daemon in (node, lookupd)}
        for name, secret in ODD.items():
            for daemon, known in daemons:
                assert not known(daemon, secret, OTHER), (name, known)
        for daemon, known in daemons:
            assert known(daemon, RIGHT), known
            assert rss(daemon) - before[daemon] < MOST_GROWTH


@pytest.mark.parametrize("port", ["beanstalk", "http"])
def test_many_wrong_tokens_of_one_address_hold_up_no_other(tmp_path: Path, port: str) -> None:
    known = NSQD[port]
    with guarded(tmp_path) as node, connect(node, "BEANSTALK") as before:
        before.sendall(b"auth %b\r\n" % RIGHT)
        assert before.recv(100) == b"AUTHORIZED\r\n"
        if port == "http":
            with httpx.Client(headers={"Authorization": f"Bearer {WRONG.decode()}"}) as client:
                codes = [client.get(f"http://{node.http}/stats").status_code for _ in range(10 * MOST_FAILURES)]
            assert codes[: MOST_FAILURES + 1] == [401] * MOST_FAILURES + [429]
            assert set(codes) == {401, 429}
        else:
            refused = b"UNAUTHORIZED\r\n" * (MOST_FAILURES + 1)
            assert say(node, "BEANSTALK", b"auth %b\r\n" % WRONG * MANY) == refused  # then the connection ends
        assert known(node, RIGHT)  # also from that address
        assert known(node, RIGHT, OTHER)
        node.wait_for_line(f"AUTH: {MOST_FAILURES} wrong tokens or passwords from {HERE} within {FAILURES_WITHIN:g} s")
        before.sendall(b"use t\r\n")  # who was known before stays known
        assert before.recv(100) == b"USING t\r\n"


def test_nsqlookupd_and_many_wrong_tokens(tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", RIGHT)
    with Daemon("nsqlookupd", "-auth-file", str(tmp_path / "auth.toml")) as lookupd:
        assert not any(lookupd_is_known(lookupd, WRONG) for _ in range(100))
        assert lookupd_is_known(lookupd, RIGHT, OTHER)
        lookupd.wait_for_line(
            f"AUTH: {MOST_FAILURES} wrong tokens or passwords from {HERE} within {FAILURES_WITHIN:g} s"
        )


# auth files


def _gone(path: Path) -> None:
    path.unlink()


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _readable(path: Path) -> None:
    write(path, WRONG)
    path.chmod(0o644)


def _half(path: Path) -> None:
    path.write_text(path.read_text()[:-10])


def test_a_file_that_is_none_changes_nothing_and_the_next_good_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    with guarded(tmp_path) as node, Conversation(node, b"  V2AUTH\n" + sized(RIGHT)) as talk:
        assert talk.frame() is not None
        for spoil in (_gone, _directory, _pipe, _loop, _readable, _half):
            said = len(node.lines)
            spoil(path)
            eventually(lambda said=said: any("what was read last stays in force" in one for one in node.lines[said:]))
            assert http_is_known(node, RIGHT), spoil
            assert not http_is_known(node, WRONG), spoil
            talk.send(b"PUB t\n" + sized(b"x"))
            assert talk.frame() == OK
            done = run("nsqd", "-data-path", str(tmp_path / "data"), "-auth-file", str(path), "-check-config")
            assert done.returncode != 0, spoil
            assert "--auth-file" in done.stdout + done.stderr
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            said = len(node.lines)
            write(path, RIGHT)
            eventually(lambda said=said: any("AUTH: read 1 identities" in one for one in node.lines[said:]))
        path.write_text("")  # it says that there is nobody
        assert talk.frame() == (1, b"E_UNAUTHORIZED AUTH is no longer valid")
        eventually(lambda: not http_is_known(node, RIGHT, OTHER))


def test_a_file_that_changes_all_the_time_keeps_those_in_who_are_always_there(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    with guarded(tmp_path) as node, Conversation(node, b"  V2AUTH\n" + sized(RIGHT)) as talk:
        assert talk.frame() is not None
        for at in range(12):
            write(path, RIGHT, *([WRONG] if at % 2 else []))
            talk.send(b"PUB t\n" + sized(b"x"))
            assert talk.frame() == OK
            time.sleep(0.25)  # twice as often as the file is looked at
        write(path, WRONG)
        assert talk.frame() == (1, b"E_UNAUTHORIZED AUTH is no longer valid")
        assert http_is_known(node, WRONG)


# certificates


class Tunnel:
    """What stunnel does: plain connections to a port on loopback go on by TLS, with a certificate."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        self._address, self._context = address, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(plain,), daemon=True).start()

    def _pass_on(self, plain: socket.socket) -> None:
        """Strictly in turns, as clients of beanstalkd speak."""
        with contextlib.suppress(OSError), plain, socket.create_connection(self._address, 30) as raw:
            secure = self._context.wrap_socket(raw, server_hostname="localhost")
            while said := plain.recv(65536):
                secure.sendall(said)
                plain.sendall(secure.recv(65536))


@contextlib.contextmanager
def through_tunnel(node: Daemon, authority: Authority, own: trustme.LeafCert | None) -> Iterator[tuple[str, int]]:
    tunnel = Tunnel(beanstalk(node, "BEANSTALK TLS"), authority.client(own))
    try:
        yield tunnel.address
    finally:
        tunnel.close()


def test_an_unchanged_client_of_beanstalkd_is_known_by_a_certificate_that_is_valid(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    write(tmp_path / "auth.toml", RIGHT, more=CERTIFICATE)
    flags = (
        *authority.flags(), "-https-address", "127.0.0.1:0", "-beanstalk-tls-address", "127.0.0.1:0",
        "-tls-client-auth-policy", "require-verify", "-tls-root-ca-file", authority.root,
        "-auth-file", str(tmp_path / "auth.toml"),
    )  # fmt: skip
    with nsqd(tmp_path / "data", *flags) as node:
        with (
            through_tunnel(node, authority, authority.issue("billing7")) as address,
            greenstalk.Client(address) as client,
        ):
            job = client.reserve_job(client.put("paid"))
            assert job.body == "paid"
            client.delete(job)
        with (
            through_tunnel(node, authority, authority.issue("stranger")) as address,
            greenstalk.Client(address) as client,
            pytest.raises(greenstalk.UnknownResponseError, match="UNAUTHORIZED"),
        ):
            client.put("paid")
        for own in (authority.issue_expired("billing7"), None):
            with (
                through_tunnel(node, authority, own) as address,
                greenstalk.Client(address) as client,
                pytest.raises((ConnectionError, EOFError)),
            ):
                client.put("paid")
        node.wait_for_line("certificate has expired")
