"""`disque-server` as supervisors and its clients know it: restarts, its configuration, its signals, and an import.

PENSTOCK_DISQUE=PATH names a real disque-server, whose file is imported.
"""

import json
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from nsqd.storage.disque_aof import FILE, read_aof
from nsqd.storage.disque_import import ASIDE, MARKER
from tests import daemons
from tests.daemons import Tool, eventually, our_command
from tests.disque_client import Client
from tests.nsqd.storage.test_disque_aof import ACTIVE, disque, load, original

pytestmark = pytest.mark.process

SECOND = 1_000_000_000


class Server(Tool):
    """A running disque-server of ours. `words`: its command line, to which a free port of loopback is added."""

    def __init__(self, *words: str, listeners: int = 1, log: Path | None = None, text: str = "") -> None:
        where = () if "--port" in words else ("--port", "0", "--bind", "127.0.0.1")
        super().__init__(our_command("disque-server"), *words, *where, stdin=subprocess.PIPE)
        self._listeners, self._log, self._text = listeners, log, text

    def __enter__(self) -> Self:
        super().__enter__()
        self.process.stdin.write(self._text)
        self.process.stdin.close()
        eventually(lambda: len(self.places) >= self._listeners or self.process.poll() is not None)
        assert len(self.places) >= self._listeners, self.stderr
        return self

    @property
    def places(self) -> list[tuple[str, int] | str]:
        """Return where it listens, as its log says."""
        log = self.stderr if self._log is None else self._log.read_text() if self._log.exists() else ""
        found = [address.rpartition(":") for address in re.findall("listening on (.+)\n", log)]
        return [(host, int(port)) if host else port for host, _, port in found]

    def client(self, place: int = 0) -> Client:
        return Client(self.places[place])


def kept(path: Path, *words: str) -> Server:
    """A server with its jobs in the directory."""
    return Server("--dir", str(path), "--appendonly", "yes", "--appendfsync", "always", *words)


def run(*words: str) -> tuple[int, str, str]:
    done = daemons.run("disque-server", *words)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_jobs_stay_over_a_restart(how: int, tmp_path: Path) -> None:
    with kept(tmp_path) as server, server.client() as client:
        first = client.do("ADDJOB", "work", "first", 0)
        second = client.do("ADDJOB", "work", "second", 0, "RETRY", 1000)
        late = client.do("ADDJOB", "work", "late", 0, "DELAY", 500, "TTL", 1000)
        assert client.get("work", 1) == [b"first"]
        assert client.do("ACKJOB", first) == 1
        assert client.get("work", 1) == [b"second"]
        assert server.stop(how) == (-how if how == signal.SIGKILL else 0)
    with kept(tmp_path) as server, server.client() as client:
        assert client.do("SHOW", first) is None
        response = client.show(late)
        assert (response["state"], response["body"], response["delay"]) == (b"active", b"late", 500)
        assert client.show(second)["retry"] == 1000
        assert client.do("QLEN", "work") == 1  # a start ends all deliveries
        assert client.get("work") == [b"second"]
        assert client.do("INFO", "persistence").count(b"aof_state:on") == 1
        assert server.stop() == 0


def test_with_a_password_and_without_appendonly_nothing_is_written(tmp_path: Path) -> None:
    with Server("--dir", str(tmp_path), "--requirepass", 'a "b\\ \xe9') as server, server.client() as client:
        assert not any("without authentication" in line for line in server.lines)
        assert client.do("AUTH", "a").startswith("-ERR invalid password")
        assert client.do("AUTH", 'a "b\\ \xe9'.encode()) == "OK"
        client.do("ADDJOB", "q", "x", 0)
        assert server.stop() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_file_with_flags_behind_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "more.conf").write_text("maxclients 2\nappendonly yes\nport 1\n")
    path = tmp_path / "disque.conf"
    text = f"""# of a test
timeout 5
bind 127.0.0.1
include {tmp_path / "more.conf"}
dir "{tmp_path / "data"}"
pidfile pid
unixsocket 'sock et'
unixsocketperm 700
logfile "log"
maxmemory 200mb
loglevel verbose
hz 1000
"""
    path.write_text(text)
    log = tmp_path / "data/log file"
    words = (str(path), "--logfile", "log file", "--port", "0", "--loglevel", "debug")
    with Server(*words, log=log) as server:  # with a unix socket, port 0 is none
        with Client(str(tmp_path / "data/sock et")) as client:
            response = client.do("CONFIG", "GET", "*")
            config = dict(zip(response[::2], response[1::2], strict=True))
            assert config[b"dir"] == str(tmp_path / "data").encode()
            assert (config[b"maxclients"], config[b"appendonly"], config[b"hz"]) == (b"2", b"yes", b"500")
            assert (config[b"maxmemory"], config[b"loglevel"]) == (b"209715200", b"debug")
            assert (config[b"unixsocketperm"], config[b"bind"]) == (b"700", b"127.0.0.1")
            assert f"config_file:{path}\r\n".encode() in client.do("INFO", "server")
            assert client.do("ADDJOB", "q", "x", 0).startswith("D-")
            assert (tmp_path / "data/pid").read_text() == f"{server.process.pid}\n"
            assert (tmp_path / "data/sock et").stat().st_mode & 0o777 == 0o700
            assert client.do("CONFIG", "SET", "requirepass", "secret") == "OK"
            assert client.do("AUTH", "secret") == "OK"
            assert client.do("CONFIG", "REWRITE") == "OK"
        assert server.stop() == 0
        said = server.stderr
    assert "disque-server: maxmemory has no effect" in said
    assert "disque-server: timeout has no effect" in said
    assert not (tmp_path / "data/pid").exists()
    assert not (tmp_path / "data/sock et").exists()
    assert (tmp_path / "data/log").is_dir()
    lines = path.read_text().splitlines()
    assert lines[0] == "# of a test"
    assert lines[lines.index("hz 500") :] == [
        "hz 500", "# Generated by CONFIG REWRITE", "port 0", 'requirepass "secret"', "maxclients 2", "appendonly yes",
    ]  # fmt: skip


def test_a_configuration_from_standard_input_and_several_addresses() -> None:
    text = "bind 127.0.0.1 127.0.0.1\nport 0\n"
    with (
        Server("-", "--port", "0", "--enable-debug-command", "yes", text=text, listeners=2) as server,
        server.client(0) as one,
        server.client(1) as other,
    ):
        assert server.places[0] != server.places[1]
        one.do("ADDJOB", "q", "x", 0)
        assert other.get("q") == [b"x"]
        assert one.do("CONFIG", "REWRITE") == "-ERR The server is running without a config file"
        assert one.do("DEBUG", "FLUSHALL") == "OK"


def test_the_command_line_and_exit_codes(tmp_path: Path) -> None:
    for flag in ("-v", "--version"):
        code, out, error = run(flag)
        assert (code, error) == (0, "")
        assert out.startswith("Disque server v=1.0-rc1 sha=")
    for flag in ("-h", "--help"):
        code, out, error = run(flag)
        assert (code, out) == (1, "")
        assert error.startswith("Usage: disque-server [/path/to/disque.conf] [options]\n")
    assert "--test-memory is not supported" in run("--test-memory", "100")[2]
    code, _, error = run("--port", "x1", "--dir", str(tmp_path))
    assert code == 1
    assert error == (
        "\n*** FATAL CONFIG FILE ERROR ***\nReading the configuration file, at line 2\n>>> 'port \"x1\"'\nInvalid port\n"
    )
    assert "a supervisor, such as systemd" in run("--daemonize", "yes")[2]
    refused: dict[Sequence[str], str] = {
        (str(tmp_path / "none.conf"),): f"can't open config file '{tmp_path / 'none.conf'}': No such file",
        ("--include", str(tmp_path / "none.conf")): f"can't open config file '{tmp_path / 'none.conf'}': No such file",
        ("--dir", str(tmp_path / "none")): f"Can't chdir to '{tmp_path / 'none'}': No such file",
        ("--dir", str(tmp_path), "--logfile", "none/log"): "Can't open the log file: No such file",
        ("--bind", "no.such.host.invalid"): "listen (no.such.host.invalid:7711) failed",
    }
    for words, what in refused.items():
        code, out, error = run(*words)
        assert (code, out) == (1, "")
        assert what in error
        assert "Traceback" not in error
    with kept(tmp_path) as server:
        code, _, error = run("--dir", str(tmp_path), "--appendonly", "yes", "--port", "0", "--bind", "127.0.0.1")
        assert (code, "Traceback" in error) == (1, False)
        assert "failed to lock" in error
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub/other.aof").write_bytes(b"")
        code, _, error = run(
            "--dir", str(tmp_path / "sub"), "--appendonly", "yes", "--appendfilename", "other.aof", "--port", "0"
        )
        assert code == 1
        assert "appendfilename is other.aof, and only disque.aof is imported" in error
        assert server.stop() == 0


# the import


def compose(path: Path) -> bytes:
    """A file of Disque with jobs, and a cut tail. tests/nsqd/storage/test_disque_import.py has jobs of all kinds."""
    wall = time.time_ns()
    created, ends = wall - 100 * SECOND, wall // SECOND + 900
    data = load(1, b"one", b"work", created=created, expires=ends, nacks=2, deliveries=1)
    data += load(2, b"late", b"work", created=created, expires=ends, delay=600, state=ACTIVE)
    data += load(3, b"once", b"work", created=created, expires=ends, retry=0)
    data += load(4, b"over", b"work", created=created, expires=1)
    data += load(5, b"odd", b"a \xff queue", created=created, expires=ends)
    data += b"*2\r\n$7\r\nLOADJ"
    (path / FILE).write_bytes(data)
    return data


def test_a_file_of_disque_is_imported_at_the_first_start(tmp_path: Path) -> None:
    data = compose(tmp_path)
    with kept(tmp_path) as server:
        said = server.stderr
        assert "imported 3 jobs of Disque, with new ids; 1 more had expired" in said
        assert "not imported: 1 jobs with retry 0, which may have been delivered" in said
        assert "disque.aof: skipped 13 bytes from" in said
        assert "queue b'a \\xff queue' has the name a%20%ff%20queue here" in said
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    assert (tmp_path / ASIDE / FILE).read_bytes() == data
    assert not (tmp_path / FILE).exists()
    assert not (tmp_path / MARKER).exists()
    with kept(tmp_path) as server, server.client() as client:
        assert not any("IMPORT" in line for line in server.lines)
        found = {one["body"]: one for one in map(client.show, client.do("JSCAN", "BUSYLOOP")[1])}
        assert set(found) == {b"one", b"late", b"odd"}
        assert (found[b"one"]["nacks"], found[b"one"]["additional-deliveries"]) == (2, 1)
        assert (found[b"late"]["state"], found[b"late"]["delay"]) == (b"active", 600)
        assert client.get("work") == [b"one"]
        assert client.get("a%20%ff%20queue") == [b"odd"]


def penstock_import(path: Path, *flags: str) -> tuple[int, str]:
    done = daemons.run("penstock", "import", str(path), *flags)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout or done.stderr


def test_the_command(tmp_path: Path) -> None:
    compose(tmp_path)
    code, out = penstock_import(tmp_path, "--json")
    response = json.loads(out)
    assert (code, response["jobs"], response["messages"]) == (3, 3, 0)
    assert response["disque"] == {"perhaps_delivered": 1, "expired": 1, "renamed": {"a \xff queue": "a%20%ff%20queue"}}
    assert [one["file"] for one in response["unreadable"]] == [FILE]
    (tmp_path / FILE).write_bytes(load(1))
    code, out = penstock_import(tmp_path)
    assert (code, "already has a log: 1 files of Disque's append-only file are not imported" in out) == (1, True)
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / FILE).write_bytes(b"")
    (tmp_path / "both" / "binlog.1").write_bytes(b"")
    code, out = penstock_import(tmp_path / "both")
    assert (code, "holds files of both beanstalkd and Disque" in out) == (1, True)


@original
def test_what_the_real_disque_wrote(tmp_path: Path) -> None:
    with disque(tmp_path) as original_server:
        ids = [original_server("ADDJOB", f"q{number % 3}", f"job {number}", "0", "TTL", "1000") for number in range(30)]
        late = original_server("ADDJOB", "late", "late", "0", "TTL", "1000", "DELAY", "500", "RETRY", "7")
        original_server("ADDJOB", "once", "once", "0", "RETRY", "0")
        original_server("ADDJOB", "once", "once, late", "0", "RETRY", "0", "DELAY", "400")
        original_server("ACKJOB", *ids[:5])
        original_server("GETJOB", "FROM", "q0")
        jobs = {body: original_server.job(job_id) for body, job_id in ((b"late", late), (b"job 7", ids[7]))}
    assert len(read_aof(tmp_path / FILE, int(time.time())).jobs) == 28
    with kept(tmp_path) as server, server.client() as client:
        assert any("not imported: 1 jobs with retry 0" in line for line in server.lines)
        found = {}
        for job_id in client.do("JSCAN", "BUSYLOOP")[1]:
            one = client.show(job_id)
            found[one["body"]] = one
        assert set(found) == {b"late", b"once, late", *(f"job {number}".encode() for number in range(5, 30))}
        for body, before in jobs.items():
            after = found[body]
            for key in ("queue", "ctime", "delay", "retry", "state", "nacks", "additional-deliveries", "repl"):
                assert after[key] == before[key.encode()], key
            assert abs(after["ttl"] - before[b"ttl"]) < 60
        assert found[b"late"]["next-requeue-within"] <= jobs[b"late"][b"next-requeue-within"]
        for number in range(3):
            wanted = [f"job {one}".encode() for one in range(5, 30) if one % 3 == number]
            assert client.get(f"q{number}", 30) == wanted
