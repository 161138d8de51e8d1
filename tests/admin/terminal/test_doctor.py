"""`penstock doctor`: findings about nodes and this machine, each with its action."""

from pathlib import Path

from admin.nodes.cluster import Producer
from admin.terminal.doctor import local_only, machine
from tests.admin.terminal.program import Terminal
from tests.admin.terminal.program import nodes as nodes  # the fixtures
from tests.admin.terminal.program import terminal as terminal
from tests.local_node import LocalNode


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
    assert '"severity": "critical", "subject": "127.0.0.1:4251", "problem": "no answer for ' in out
    assert "Start it again on the same data directory." in out
    assert "consumers are sent to 127.0.0.1:4150, which cannot be reached from here: Connection refused" in out
