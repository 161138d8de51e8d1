"""INFO: its sections have the form of Disque's, and its values are those of this node."""

from collections.abc import Iterator

import pytest

from nsqd.protocols.disque.context import ServerFigures
from tests.cases import each
from tests.nsqd.protocols.disque.wire import Wire, new_wire, request

DEFAULT = ["Server", "Clients", "Memory", "Jobs", "Queues", "Persistence", "Stats", "CPU"]
FIGURES = ServerFigures(
    os="Linux 6 x86_64",
    pid=123,
    run_id="ab" * 20,
    port=7712,
    uptime=2 * 86_400 + 5,
    executable="nsqd",
    config_file="/etc/disque.conf",
    resident=3 << 20,
    peak=5 << 20,
    cpu_system=1.25,
    cpu_user=2.5,
    is_durable=True,
)


def measured_wire() -> Wire:
    wire = new_wire()
    wire.context.figures = lambda: FIGURES
    return wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = measured_wire()
    yield wire
    wire.check()


def sections(wire: Wire, *words: str) -> dict[str, dict[str, str]]:
    """The fields of each section, in order."""
    text = wire.do("INFO", *words).decode()
    found: dict[str, dict[str, str]] = {}
    for part in text.split("\r\n\r\n"):
        head, *lines = part.splitlines()
        assert head.startswith("# ")
        found[head[2:]] = dict(line.split(":", 1) for line in lines)
    return found


@each("words, reply", [
        ("QUEUES", "# Queues\r\nregistered_queues:0\r\n"), ("nosuch", ""), ("keyspace", ""), ("", ""), ("\xff", ""),
    ], wire=measured_wire)  # fmt: skip
def test_a_section_has_the_form_of_disque(wire: Wire, words: str, reply: str) -> None:
    assert wire.do("INFO", words) == reply.encode()


def test_the_state_of_the_process_and_counts_of_commands_only_if_they_are_asked_for(wire: Wire) -> None:
    found = sections(wire)
    server = found["Server"]
    assert server["disque_version"] == "1.0-rc1"
    assert (server["process_id"], server["tcp_port"], server["run_id"]) == ("123", "7712", "ab" * 20)
    assert (server["uptime_in_seconds"], server["uptime_in_days"]) == ("172805", "2")
    assert (server["os"], server["executable"], server["config_file"]) == ("Linux 6 x86_64", "nsqd", "/etc/disque.conf")
    memory = found["Memory"]
    assert (memory["used_memory"], memory["used_memory_human"]) == (str(3 << 20), "3.00M")
    assert (memory["used_memory_peak"], memory["used_memory_peak_human"]) == (str(5 << 20), "5.00M")
    assert (found["CPU"]["used_cpu_sys"], found["CPU"]["used_cpu_user"]) == ("1.25", "2.50")
    assert [name for name, value in found["Persistence"].items() if value == "1"] == ["aof_enabled"]
    assert list(sections(wire)) == list(sections(wire, "default")) == DEFAULT
    assert list(sections(wire, "ALL")) == [*DEFAULT, "Commandstats"]
    assert list(sections(wire, "commandstats")) == ["Commandstats"]
    assert wire.do("INFO", "jobs", "queues") == "-ERR syntax error"


def test_jobs_in_any_state_and_clients_that_wait_are_counted(wire: Wire) -> None:
    other = wire.another()
    wire.context.clients = lambda: [wire.peer, other.peer]
    wire.add("q")
    wire.add("q")
    wire.get("q")
    wire.add("r", "later", "DELAY", 10)
    assert sections(wire, "jobs")["Jobs"] == {"registered_jobs": "3"}
    assert sections(wire, "queues")["Queues"] == {"registered_queues": "2"}
    other.replies(request("GETJOB", "FROM", "s"))
    found = sections(wire, "clients")["Clients"]
    assert (found["connected_clients"], found["blocked_clients"]) == ("2", "1")
    wire.add("s")
    assert sections(wire, "clients")["Clients"]["blocked_clients"] == "0"


def test_commands_are_counted_until_they_are_reset(wire: Wire) -> None:
    for _ in range(3):
        wire.do("ACKJOB", wire.add("q", "the same"))
    wire.do("PING")
    wire.do("NOSUCH")
    assert sections(wire, "commandstats")["Commandstats"] == {
        "cmdstat_ackjob": "calls=3,usec=0,usec_per_call=0.00", "cmdstat_addjob": "calls=3,usec=0,usec_per_call=0.00",
        "cmdstat_info": "calls=1,usec=0,usec_per_call=0.00", "cmdstat_ping": "calls=1,usec=0,usec_per_call=0.00",
    }  # fmt: skip
    assert sections(wire, "stats")["Stats"]["total_commands_processed"] == "9"
    wire.do("CONFIG", "RESETSTAT")
    assert sections(wire, "commandstats")["Commandstats"] == {"cmdstat_info": "calls=1,usec=0,usec_per_call=0.00"}
