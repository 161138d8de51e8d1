"""`penstock doctor`: findings about nodes and this machine, each with its action."""

import json
from pathlib import Path

import pytest

from admin.nodes.cluster import Producer
from admin.terminal import doctor
from admin.terminal.doctor import findings_of, local_only, machine
from tests.admin.terminal.program import Terminal, reported
from tests.cases import each
from tests.local_node import SECOND, START, LocalNode


@pytest.fixture
def sound_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "machine", lambda *limits: [])


@pytest.mark.usefixtures("sound_machine")
@each("path, fields, code, problem, action", [
    ("/storage", {"sync_p99_ms": 900.0}, 1, "the 99th percentile of a sync is 900 ms", "Check what else uses the disk"),
    ("/storage", {"disk_free": 10, "disk_total": 100}, 1, "(10 %), the threshold is 20 %", "Free space"),
    ("/storage", {"damage": 4096}, 2, "are corrupt", "repair the log from a copy"),
    ("/channels/attention", {"certificates": [{"option": "tls-cert", "ends": 1}]}, 2, "expired on 1970", "Renew the"),
    ("/channels/attention", {"now": START + 60 * SECOND}, 1, "ahead of the others", "Check NTP"),
])  # fmt: skip
def test_a_problem_of_a_node_and_what_to_do(
    terminal: Terminal, path: str, fields: dict[str, object], code: int, problem: str, action: str
) -> None:
    terminal.network.change = reported(path, **fields)
    found, out, error = terminal("doctor", "--json")
    assert (found, error) == (code, "")
    [row] = map(json.loads, out.splitlines())
    assert problem in row["problem"]
    assert action in row["action"]
    assert row["subject"].startswith("127.0.0.1:4251")


@pytest.mark.usefixtures("sound_machine")
def test_versions_that_differ(nodes: list[LocalNode], terminal: Terminal) -> None:
    assert terminal("doctor") == (0, "", "nothing was found\n")
    terminal.network.version["127.0.0.1:4251"] = "1.2.0"
    code, out, _ = terminal("doctor")
    assert (code, out.splitlines()) == (
        0, ["info: 127.0.0.1:4251: runs Penstock 0.1.0 (NSQ API 1.2.0)", "  Complete the upgrade, one node after the other."],
    )  # fmt: skip


def test_the_lines_of_a_daemon_about_its_config_file() -> None:
    lines = "nsqd: invalid value 3 for x\nnsqd: warning: config file f: unknown key memm\n"
    found = [(one.severity, one.subject, one.problem) for one in findings_of("f", "nsqd", lines)]
    assert found == [("critical", "f", "invalid value 3 for x"), ("warning", "f", "config file f: unknown key memm")]


@pytest.mark.process
@pytest.mark.usefixtures("sound_machine")
def test_config_files_are_checked_by_their_daemons(terminal: Terminal, tmp_path: Path) -> None:
    rights = tmp_path / "auth.toml"
    rights.write_text("")
    rights.chmod(0o644)
    config = tmp_path / "nsqd.toml"
    config.write_text(f'mem_queue_sizee = 3\nauth_file = "{rights}"\n')
    code, out, error = terminal("doctor", "--json", "--config", f"nsqd={config}")
    assert (code, error) == (2, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["severity"] for row in rows] == ["critical", "warning"]
    assert "all users of this machine can read it" in rows[0]["problem"]
    assert "mem_queue_sizee" in rows[1]["problem"]
    assert terminal("doctor", "--config", "sshd=/etc/x")[0] == 2


def test_the_limits_of_a_machine(tmp_path: Path) -> None:
    somaxconn = tmp_path / "somaxconn"
    somaxconn.write_text("4096\n")
    assert list(machine((3, 11), -1, somaxconn)) == []
    assert list(machine((3, 13), 4096, tmp_path / "missing")) == []
    somaxconn.write_text("128\n")
    found = list(machine((3, 9), 256, somaxconn))
    assert [one.severity for one in found] == ["critical", "warning", "info"]
    assert "a process may open 256 files" in found[1].problem
    assert found[2].action == "sysctl net.core.somaxconn=4096"


def test_a_loopback_address_among_several_machines() -> None:
    one, other = Producer("a", "127.0.0.1", 4150, 4151, ""), Producer("b", "10.0.0.2", 4150, 4151, "")
    assert list(local_only([one])) == []
    assert [found.subject for found in local_only([one, other])] == ["127.0.0.1:4151"]
    assert list(local_only([other, Producer("c", "db.example.com", 4150, 4151, "")])) == []


def test_a_node_that_consumers_cannot_reach_and_one_that_is_lost(nodes: list[LocalNode], terminal: Terminal) -> None:
    terminal.network.unreachable.add("127.0.0.1:4151")
    terminal.network.down.add("127.0.0.1:4251")
    code, out, error = terminal(
        "doctor", "--json", "--lookupd-http-address", "127.0.0.1:4161", "--nsqd-http-address", "127.0.0.1:4251"
    )
    assert (code, error.count("\n")) == (2, 1)
    assert (
        '"severity": "critical", "subject": "127.0.0.1:4251", "problem": "no answer. Its counts are not known.' in out
    )
    assert "Start it again on the same data directory." in out
    assert "consumers are sent to 127.0.0.1:4150, which cannot be reached from here: Connection refused" in out
