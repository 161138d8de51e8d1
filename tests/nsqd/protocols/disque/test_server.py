"""Who a client is, and small commands about the server.

Where it is not said otherwise, the replies are those of Disque 1.0-rc1.
"""

from nsqd.core.limits import Limits
from nsqd.protocols.disque.arguments import COMMANDS
from nsqd.protocols.disque.flush import MOST_FLUSHED
from nsqd.protocols.disque.server import NO_AOF, NO_DEBUG, NO_SHUTDOWN
from shared.foreign import Foreign
from shared.version import PENSTOCK_VERSION
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.disque.wire import Reply, Wire, new_wire, request

NO_AUTH = "-NOAUTH Authentication required."
UNKNOWN = "D-aaaaaaaa-bbbbbbbbbbbbbbbbbbbbbbbb-05a1"
PASSWORD = b"sesame"


@each(
    "sent, kind",
    [
        (b"GET / HTTP/1.1\r\n", Foreign.HTTP),
        (b"put 0 0 9 28\r\n", Foreign.JOB),
        (b"  V2SUB t c\n", Foreign.NSQ),
        (b"\x16\x03\x01\x02", Foreign.TLS),
        (b"\0\0\0\x5a\x01\x95\x01", Foreign.CLUSTER),
    ],
)
@each("size", [1, 1000], wire=new_wire)
def test_other_protocols_end_the_connection_and_are_logged(wire: Wire, sent: bytes, kind: Foreign, size: int) -> None:
    said = sent + request("ADDJOB", "q", "smuggled", 0)
    assert b"".join(wire.ask(said[at : at + size]) for at in range(0, len(said), size)) == b""
    assert wire.peer.outbox.closing
    assert wire.foreign == [("DISQUE", str(kind))]
    assert wire.another().do("QLEN", "q") == 0


@each("line", ["stats", "use t", "put", "put a b c d"], wire=new_wire)
def test_an_inline_command_that_is_none_is_answered_as_ever(wire: Wire, line: str) -> None:
    assert wire.replies(line.encode() + b"\r\n") == [f"-ERR unknown command '{line.split()[0]}'"]
    assert not wire.foreign


def with_password() -> Wire:
    """A client that has not said the password."""
    wire = Wire(Node(Limits(whole_job_ids=True)))
    wire.context.password = PASSWORD
    return wire.another()


SLOWLOG = b"-ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.\r\n"
DEBUG = b"-ERR Unknown DEBUG subcommand or wrong number of arguments for '%s'\r\n"
REPLIES = {
    b"+PONG\r\n": ["PING"], b"$1\r\nx\r\n": ["PING x"], b"+OK\r\n": ["slowlog reset"], b"-MY\r\n": ["DEBUG ERROR MY"],
    b"*0\r\n": [
        "COMMAND INFO", "SLOWLOG GET", "SLOWLOG GET 0", "SLOWLOG GET -1", "LATENCY LATEST", "LATENCY HISTORY command",
    ],
    b":0\r\n": ["SLOWLOG LEN", "LATENCY RESET", "LATENCY RESET a b"], b":32\r\n": ["COMMAND COUNT"],
    b"-ERR wrong number of arguments for 'ping' command\r\n": ["PING x y"],
    b"-ERR wrong number of arguments for 'auth' command\r\n": ["AUTH default x"],
    b"-ERR wrong number of arguments for 'bgrewriteaof' command\r\n": ["BGREWRITEAOF x"],
    b"-ERR Client sent AUTH, but no password is set\r\n": ["AUTH x"],
    b"-ERR unknown command 'SELECT'\r\n": ["SELECT 0"],
    b"-ERR LOADJOB is a special command only processed from AOF\r\n": ["LOADJOB x"],
    b"-ERR Unknown subcommand or wrong number of arguments.\r\n": ["COMMAND COUNT x", "COMMAND DOCS"],
    b"*4\r\n*6\r\n$6\r\naddjob\r\n:-4\r\n*3\r\n+write\r\n+denyoom\r\n+fast\r\n:0\r\n:0\r\n:0\r\n"
    b"*6\r\n$6\r\ngetjob\r\n:-2\r\n*2\r\n+write\r\n+fast\r\n:0\r\n:0\r\n:0\r\n$-1\r\n"
    b"*6\r\n$4\r\nping\r\n:-1\r\n*2\r\n+readonly\r\n+fast\r\n:0\r\n:0\r\n:0\r\n": [
        "COMMAND INFO addjob GETJOB nosuch ping",
    ],
    b"*1\r\n*6\r\n$5\r\nhello\r\n:1\r\n*2\r\n+readonly\r\n+fast\r\n:0\r\n:0\r\n:0\r\n": ["COMMAND INFO hello"],
    b"-ERR value is not an integer or out of range\r\n": ["SLOWLOG GET x"],
    SLOWLOG: ["SLOWLOG GET 1 2", "SLOWLOG LEN x", "SLOWLOG BOGUS"],
    b"-ERR syntax error\r\n": [
        "LATENCY LATEST x", "LATENCY HISTORY", "LATENCY BOGUS", "SHUTDOWN x", "SHUTDOWN REWRITE-AOF x",
    ],
    b"-ERR No samples available for event 'command'\r\n": ["LATENCY GRAPH command"],
    DEBUG % b"ERROR": ["DEBUG ERROR"], DEBUG % b"BOGUS": ["DEBUG BOGUS"],
}  # fmt: skip


@each("words, reply", [(words, reply) for reply, commands in REPLIES.items() for words in commands], wire=new_wire)
def test_a_command_and_its_reply(wire: Wire, words: str, reply: bytes) -> None:
    assert wire.ask(request(*words.split())) == reply


def test_command_lists_all_commands_with_their_arity(wire: Wire) -> None:
    commands = wire.do("COMMAND")
    assert {one[0] for one in commands} == set(COMMANDS)
    assert {len(one) for one in commands} == {6}
    assert {one[0]: one[1] for one in commands} == {one.name: one.arity for one in COMMANDS.values()} | {b"hello": 1}
    for name, arity in ((one[0].decode(), one[1]) for one in wire.do("COMMAND")):
        counts = [count for count in range(1, abs(arity) + 2) if (count != arity if arity > 0 else count < -arity)]
        for count in counts if name != "hello" else ():  # clients of Redis send more words
            refusal = f"-ERR wrong number of arguments for '{name}' command"
            assert wire.do(name.upper(), *["x"] * (count - 1)) == refusal


def test_time_is_that_of_the_node_and_odd_words_are_answered_in_one_line(wire: Wire) -> None:
    wire.advance(2_500)
    seconds, micros = wire.do("TIME")
    assert int(seconds) * 1_000_000 + int(micros) == wire.node.broker.wall // 1_000
    assert wire.do("PING", "") == b""
    assert wire.do("") == "-ERR unknown command ''"
    assert wire.do("a\r\nb") == "-ERR unknown command 'a  b'"
    assert wire.ask(request("DEBUG", "ERROR", "MY error\r\ntext")) == b"-MY error  text\r\n"
    assert wire.ask(request("DEBUG", "ERROR", "")) == b"-\r\n"


# differs from Disque


@each("words, text", [("BGREWRITEAOF", NO_AOF), ("SHUTDOWN", NO_SHUTDOWN), ("DEBUG FLUSHALL", NO_DEBUG)], wire=new_wire)
def test_what_cannot_be_done_is_answered_with_what_to_do_instead(wire: Wire, words: str, text: bytes) -> None:
    assert wire.ask(request(*words.split())) == b"-" + text + b"\r\n"
    assert wire.do("PING") == "PONG"


@each("words", ["SHUTDOWN", "shutdown rewrite-aof"], wire=new_wire)
def test_shutdown_ends_the_process_without_a_reply(wire: Wire, words: str) -> None:
    stops: list[None] = []
    wire.context.stop = lambda: stops.append(None)
    assert wire.ask(request(*words.split()) + request("PING")) == b""
    assert len(stops) == 1
    assert wire.peer.outbox.closing


# HELLO

HELLO = ["server", "version", "proto", "id", "mode", "role", "modules"]


def hello_of(reply: Reply) -> dict[str, Reply]:
    return dict(zip([key.decode() for key in reply[::2]], reply[1::2], strict=True))


@each("version, kind", [(2, b"*14\r\n"), (3, b"%7\r\n")], wire=new_wire)
def test_hello_with_a_version_is_that_of_redis(wire: Wire, version: int, kind: bytes) -> None:
    said = wire.ask(request("HELLO", version))
    assert said.startswith(kind)
    commands = hello_of(wire.do("HELLO", version, *("AUTH", "default", "x") * (version == 3)))  # there is no password
    assert list(commands) == HELLO
    assert commands["proto"] == version
    assert commands["version"] == PENSTOCK_VERSION.encode()
    assert commands["id"] == wire.do("CLIENT", "ID")
    assert commands["modules"] == []


def test_hello_without_a_version_is_that_of_disque_whatever_came_before_and_gives_a_name(wire: Wire) -> None:
    node_id = wire.context.ids.node_id(7)
    commands = [1, node_id, [node_id, b"", b"7711", b"1"]]
    assert wire.do("HELLO") == commands
    wire.do("HELLO", 3)
    assert wire.do("hello") == commands
    assert hello_of(wire.do("HELLO", 3, "setname", "bob"))["proto"] == 3
    assert wire.do("CLIENT", "GETNAME") == b"bob"
    assert wire.do("HELLO", 3, "SETNAME", "a b").startswith("-ERR Client names cannot contain spaces")
    assert wire.do("CLIENT", "GETNAME") == b"bob"


def test_nils_depend_on_the_version(wire: Wire) -> None:
    words = (("SHOW", UNKNOWN), ("GETJOB", "NOHANG", "FROM", "q"), ("QSTAT", "nosuch"), ("CLIENT", "GETNAME"))
    commands, old = b"".join(request(*one) for one in words), b"$-1\r\n*-1\r\n*-1\r\n$-1\r\n"
    assert wire.ask(commands) == old
    wire.do("HELLO", 3)
    assert wire.ask(commands) == b"_\r\n" * 4
    assert wire.ask(request("COMMAND", "INFO", "nosuch")) == b"*1\r\n_\r\n"
    wire.ask(request("GETJOB", "TIMEOUT", 10, "FROM", "q"))
    assert wire.advance(10).said() == b"_\r\n"
    wire.do("HELLO", 2)
    assert wire.ask(commands) == old


@each("words, reply", [
    ("HELLO 1", "-NOPROTO unsupported protocol version"), ("HELLO 4", "-NOPROTO unsupported protocol version"),
    ("HELLO x", "-ERR wrong number of arguments for 'hello' command"),
    ("HELLO -3", "-ERR wrong number of arguments for 'hello' command"),
    ("HELLO 3 AUTH x", "-ERR Syntax error in HELLO option 'AUTH'"),
    ("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'"),
    ("HELLO 3 bogus", "-ERR Syntax error in HELLO option 'bogus'"),
], wire=new_wire)  # fmt: skip
def test_a_hello_that_is_refused_changes_nothing(wire: Wire, words: str, reply: str) -> None:
    assert wire.do(*words.split()) == reply
    assert wire.ask(request("SHOW", UNKNOWN)) == b"$-1\r\n"


# passwords


def test_without_the_password_only_auth_and_hello_are_done() -> None:
    wire = with_password()
    assert [wire.do(*words) for words in (("PING",), ("HELLO",), ("COMMAND",), ("CLIENT", "LIST"))] == [NO_AUTH] * 4
    assert wire.do("QLEN") == "-ERR wrong number of arguments for 'qlen' command"
    assert wire.do("NOSUCH") == "-ERR unknown command 'NOSUCH'"
    assert wire.do("HELLO", 3).startswith("-NOAUTH HELLO must be called")
    assert wire.do("AUTH", "wrong") == "-ERR invalid password"
    assert wire.do("PING") == NO_AUTH
    assert wire.do("AUTH", PASSWORD) == "OK"
    assert wire.do("PING") == "PONG"


def test_hello_with_a_password_and_a_wrong_one_takes_back_what_the_right_one_has_allowed() -> None:
    wire = with_password()
    wrong = "-WRONGPASS invalid username-password pair or user is disabled."
    assert wire.do("HELLO", 3, "AUTH", "default", "wrong") == wrong
    assert wire.do("PING") == NO_AUTH
    assert hello_of(wire.do("HELLO", 3, "AUTH", "default", PASSWORD, "SETNAME", "bob"))["proto"] == 3
    assert wire.do("CLIENT", "GETNAME") == b"bob"
    assert wire.do("AUTH", PASSWORD + b"x") == "-ERR invalid password"
    assert wire.do("PING") == NO_AUTH


# MONITOR


def shown(monitor: Wire) -> list[str]:
    """The commands that were shown, without the time and the address."""
    lines = monitor.replies()
    assert all(" [10.0.0.1:5555] " in line for line in lines)
    return [line.partition("] ")[2] for line in lines]


def test_who_monitors_sees_the_commands_of_all_quoted_as_in_c(wire: Wire) -> None:
    monitor = wire.another()
    assert monitor.do("MONITOR") == "OK"
    wire.do("PING", b'a\0"\\\xff\r\n')
    wire.do("NOSUCH")
    wire.do("QLEN")
    wall = wire.node.broker.wall
    assert monitor.said() == (
        b'+%d.%06d [10.0.0.1:5555] "PING" "a\\x00\\"\\\\\\xff\\r\\n"\r\n' % (wall // 10**9, wall // 1_000 % 10**6)
    )
    wire.do("PING", b"'\"\a\b\t")
    wire.do("CONFIG", "SET", "hz", "10")
    assert shown(monitor) == ['"PING" "\'\\"\\a\\b\\t"', '"CONFIG" "SET" "hz" "10"']
    assert monitor.replies(request("PING"))[-1] == "PONG"
    assert monitor.replies(request("MONITOR")) == []


def test_repeated_commands_are_shown_as_well(wire: Wire) -> None:
    job_id = wire.add("q", "1")
    monitor = wire.another()
    monitor.do("MONITOR")
    wire.add("q", "1")
    wire.do("ACKJOB", job_id)
    assert shown(monitor) == ['"ADDJOB" "q" "1" "0"', f'"ACKJOB" "{job_id}"']
    monitor.leave()
    wire.add("q", "1")
    assert not wire.context.monitors


@each(
    "words",
    ["AUTH sesame", "HELLO 3 AUTH default sesame", "config set requirepass sesame", "CONFIG SET RequirePass sesame"],
    wire=new_wire,
)
def test_passwords_are_not_shown(wire: Wire, words: str) -> None:
    monitor = wire.another()
    monitor.do("MONITOR")
    wire.do(*words.split())
    (line,) = shown(monitor)
    assert "(redacted)" in line
    assert "sesame" not in line


# DEBUG FLUSHALL


def together(*wires: Wire) -> Wire:
    """The first of the clients, all of which are known to the server, which may throw jobs away."""
    context = wires[0].context
    context.clients = lambda: [one.peer for one in wires]
    context.has_debug = True
    return wires[0]


@each("extra", [(), ("x",)], wire=new_wire)
def test_flushall_deletes_all_jobs_ends_pauses_and_answers_waiting_clients(wire: Wire, extra: tuple[str, ...]) -> None:
    waiting = wire.another()
    together(wire, waiting)
    job_id, out = wire.add("q"), wire.add("r")
    wire.get("r")
    wire.add("s", "later", "DELAY", 5)
    wire.do("PAUSE", "p", "in")
    assert waiting.replies(request("GETJOB", "FROM", "w")) == []
    assert wire.do("DEBUG", "FLUSHALL", *extra) == "OK"
    assert waiting.said() == b"*-1\r\n"
    assert [wire.show(one) for one in (job_id, out)] == [None, None]
    assert (wire.do("QLEN", "q"), wire.do("QSTAT", "q"), wire.do("PAUSE", "p", "state")) == (0, None, "none")
    assert wire.do("QSCAN") == [b"0", []]
    assert wire.ask(request("INFO", "jobs")) == b"$27\r\n# Jobs\r\nregistered_jobs:0\r\n\r\n"
    assert wire.ask(request("INFO", "queues")) == b"$31\r\n# Queues\r\nregistered_queues:0\r\n\r\n"
    wire.add("w")
    assert waiting.said() == b""
    assert wire.do("QLEN", "w") == 1


def test_flushall_is_done_in_parts_and_later_commands_wait_for_it(wire: Wire) -> None:
    together(wire)
    count = 2 * MOST_FLUSHED + 1
    added = wire.replies(b"".join(request("ADDJOB", "q", number, 0) for number in range(count)))
    assert len(added) == count
    wire.peer.receive(request("DEBUG", "FLUSHALL") + request("QLEN", "q"), wire.node.now)
    assert wire.peer.has_more
    assert wire.peer.take_output() == []
    other = wire.another()
    assert other.do("QLEN", "q") == count - MOST_FLUSHED
    assert wire.replies() == ["OK", 0]
