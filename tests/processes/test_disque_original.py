"""The same commands to the real Disque and to ours. PENSTOCK_DISQUE=PATH names the real disque-server (1.0-rc1, built by hand).

Replies are compared when ids and times are masked. What differs is in DIFFERENT, with the reason, as
docs/reference/compatibility-disque.md lists it.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bench.ports import lease_port
from tests.daemons import eventually
from tests.disque_client import Client
from tests.processes.test_disque_server import Server

pytestmark = pytest.mark.process

ORIGINAL = os.environ.get("PENSTOCK_DISQUE", "")
UNKNOWN = "D-aaaaaaaa-" + "b" * 24 + "-05a1"
VOLATILE = (b"ctime", b"ttl", b"next-requeue-within", b"next-awake-within", b"age", b"idle")
# Facts of jobs and queues that mean something else here.
OTHERWISE = (b"nodes-delivered", b"nodes-confirmed", b"import-from", b"import-rate", b"jobs-in")

# By name: commands in a row, `|` between them. `j=ADDJOB` remembers an id, which $j stands for afterwards; $u is an id of
# nobody, "" an empty word. `>` sends on a second connection, and `<` reads what came there.
CONVERSATIONS = {
    "a job": "j=ADDJOB q body 0 | SHOW $j | QLEN q | GETJOB FROM q | SHOW $j | ACKJOB $j | SHOW $j | QLEN q"
        " | ACKJOB $j",
    "options": "ADDJOB q b 0 RETRY 10 TTL 100 MAXLEN 5 ASYNC REPLICATE 1 DELAY 3 | ADDJOB q b 0 RETRY 0 DELAY 100"
        " | ADDJOB q b 0 TTL 59",
    "options that repeat": "j=ADDJOB q b 0 TTL 10 TTL 2000 DELAY 5 DELAY 0 RETRY 3 RETRY 4 | SHOW $j",
    "defaults of retry": "a=ADDJOB q b 0 TTL 29 | SHOW $a | b=ADDJOB q b 0 TTL 1000 | SHOW $b | c=ADDJOB q b 0 TTL 99999"
        " | SHOW $c",
    "bad options": " | ".join(
        f"ADDJOB q b 0 {option}"
        for option in (
            "REPLICATE 0", "REPLICATE 65536", "REPLICATE x", "REPLICATE", "TTL 0", "TTL -1", "TTL x", "TTL", "RETRY -1",
            "RETRY x", "DELAY -1", "DELAY x", "MAXLEN 0", "MAXLEN x", "ASYNC x", "NX", "TTL 1.5", "TTL +5", "TTL 0x10",
            "TTL 010", "REPLICATE 2", "DELAY 5 TTL 5", "RETRY 0 REPLICATE 2", "REPLICATE 2 DELAY 10 TTL 5",
            "TTL 0 RETRY -1", "RETRY -1 TTL 0", 'TTL ""', "REPLICATE 65535", "DELAY 86400",
        )
    ),
    "bad timeouts": 'ADDJOB q b x | ADDJOB q b -1 | ADDJOB q b "" | ADDJOB q b 1.5 | ADDJOB q b x TTL 0'
        " | ADDJOB q b x DELAY 9 TTL 5",
    "numbers of more than 32 bits": "ADDJOB q b 0 TTL 4294967396 | ADDJOB q b 0 RETRY 4294967296"
        " | ADDJOB q b 0 TTL 99999999999999999999",
    "maxlen and pauses": "ADDJOB q b 0 MAXLEN 1 | ADDJOB q b 0 MAXLEN 1 | ADDJOB q b 0 MAXLEN 2 | PAUSE q in"
        " | ADDJOB q b 0 MAXLEN 2 | ADDJOB q b 0 MAXLEN 9 | ADDJOB q b 0 DELAY 9 | PAUSE q out | ADDJOB q b 0"
        " | GETJOB NOHANG FROM q | PAUSE q state | PAUSE q none | GETJOB COUNT 9 FROM q",
    "words of a pause": "PAUSE q in out | PAUSE q state | PAUSE q in none out | PAUSE q bad | PAUSE q in bad | PAUSE q"
        " | PAUSE q STATE bcast | PAUSE new state | PAUSE new none | QSTAT new | PAUSE new all | QSTAT new",
    "order of queues": "ADDJOB x x1 0 | ADDJOB x x2 0 | ADDJOB y y1 0 | ADDJOB y y2 0 | ADDJOB y y3 0"
        " | GETJOB COUNT 3 FROM y x | GETJOB COUNT 9 FROM x y",
    "bad getjobs": " | ".join(
        f"GETJOB {words}"
        for words in (
            "FROM", "NOHANG", "q", "NOHANG q", "COUNT 0 FROM q", "COUNT -1 FROM q", "COUNT x FROM q", "COUNT FROM q", "COUNT",
            "TIMEOUT x FROM q", "TIMEOUT -1 FROM q", "TIMEOUT FROM q", "BOGUS FROM q", "TIMEOUT x COUNT 0 FROM q",
            "COUNT 99999999999999999999 FROM q", "NOHANG FROM q COUNT 3", "NOHANG FROM FROM", "NOHANG TIMEOUT 5 FROM q",
        )
    ),
    "who waits": "> GETJOB WITHCOUNTERS COUNT 5 FROM w q | j=ADDJOB q 1 0 | < | ADDJOB q 2 0 | QLEN q"
        " | > GETJOB TIMEOUT 100 FROM w | <",
    "nacks": "j=ADDJOB q b 0 | GETJOB FROM q | NACK $j | NACK $j | GETJOB WITHCOUNTERS FROM q | ENQUEUE $j"
        " | ENQUEUE $j | GETJOB WITHCOUNTERS FROM q | WORKING $j | NACK $j $j $u | SHOW $j",
    "order after a nack": "a=ADDJOB q a 0 | b=ADDJOB q b 0 | c=ADDJOB q c 0 | GETJOB FROM q | NACK $a | GETJOB COUNT 3 FROM q",
    "a delayed job": "j=ADDJOB q b 0 DELAY 100 | SHOW $j | QLEN q | DEQUEUE $j | WORKING $j | SHOW $j | NACK $j | SHOW $j"
        " | GETJOB FROM q",
    "dequeued": "j=ADDJOB q b 0 | DEQUEUE $j | DEQUEUE $j | SHOW $j | QLEN q | ENQUEUE $j"
        " | GETJOB WITHCOUNTERS FROM q | DELJOB $j | DELJOB $j",
    "retry 0": "j=ADDJOB q b 0 RETRY 0 | GETJOB FROM q | ACKJOB $j | SHOW $j",
    "retry 0, fetched": "j=ADDJOB q b 0 RETRY 0 | GETJOB FROM q | WORKING $j | NACK $j | ENQUEUE $j | GETJOB NOHANG FROM q",
    "retry 0, dequeued": "j=ADDJOB q b 0 RETRY 0 | DEQUEUE $j | QLEN q | ENQUEUE $j",
    "retry 0, working": "j=ADDJOB q b 0 RETRY 0 | WORKING $j | QLEN q",
    "ids": " | ".join(
        f"{command} {job_id}"
        for command in ("ACKJOB", "FASTACK", "NACK", "ENQUEUE", "DEQUEUE", "DELJOB", "WORKING", "SHOW")
        for job_id in ("x", '""', "$u", "d" + UNKNOWN[1:], UNKNOWN[:-1], UNKNOWN + "1", "D-zzzzzzzz-" + "!" * 24 + "-zzzz")
    ),
    "several ids": "j=ADDJOB q b 0 | ACKJOB $j bad | QLEN q | ACKJOB $u $j $j | ACKJOB | NACK | SHOW | WORKING $u $u",
    "facts of a queue": "QSTAT q | j=ADDJOB q b 0 | ADDJOB q b 0 | QSTAT q | GETJOB FROM q | QSTAT q | GETJOB NOHANG FROM n"
        " | QSTAT n | QLEN n",
    "peeks": "ADDJOB q 1 0 | ADDJOB q 2 0 | ADDJOB q 3 0 | QPEEK q 2 | QPEEK q -2 | QPEEK q 0 | QPEEK q x"
        " | QPEEK none 3 | QPEEK q -9223372036854775808 | QPEEK none x",
    "scans": "ADDJOB q 1 0 | QSCAN BUSYLOOP | QSCAN BUSYLOOP MINLEN 2 | QSCAN 0 BUSYLOOP MAXLEN 1 | QSCAN x"
        " | QSCAN 0 1 | QSCAN COUNT x | QSCAN 0 COUNT | JSCAN BUSYLOOP STATE active | JSCAN BUSYLOOP"
        " | JSCAN 0 BUSYLOOP QUEUE none | JSCAN STATE no | JSCAN REPLY no | JSCAN x | JSCAN 0 0"
        " | JSCAN 0 BUSYLOOP REPLY all",
    "the connection": 'PING | PING x | PING "" | NOSUCH | nosuch x | "" | AUTH x | CLIENT GETNAME | CLIENT SETNAME bob'
        ' | CLIENT GETNAME | CLIENT SETNAME "a b" | CLIENT KILL | CLIENT KILL 1.2.3.4:5 | CLIENT KILL ID x'
        " | CLIENT KILL ID 99999 | CLIENT KILL TYPE no | CLIENT BOGUS | CLIENT REPLY x | CLIENT PAUSE x"
        " | CLIENT PAUSE -1 | CLIENT ID | HELLO x | HELLO 3",
    "the server": "COMMAND COUNT | COMMAND INFO addjob getjob nosuch ping auth | COMMAND NO | LOADJOB x | INFO jobs"
        " | INFO queues | INFO nosuch | INFO a b | DEBUG ERROR x | DEBUG BOGUS | LATENCY LATEST"
        " | LATENCY BOGUS | LATENCY HISTORY x | SLOWLOG GET x | SLOWLOG NO | SHUTDOWN x | SHUTDOWN a b",
    "configuration": "CONFIG GET maxmemory | CONFIG GET MAXMEMORY | CONFIG GET max* | CONFIG GET no | CONFIG SET hz 0"
        " | CONFIG GET hz | CONFIG SET hz x | CONFIG SET hz 10 | CONFIG SET HZ 10 | CONFIG SET maxmemory 1g"
        " | CONFIG GET maxmemory | CONFIG SET maxmemory 1073741824 | CONFIG SET port 1 | CONFIG SET a b"
        " | CONFIG SET timeout --5 | CONFIG NO | CONFIG GET | CONFIG REWRITE | CONFIG RESETSTAT x"
        " | CONFIG SET loglevel x | CONFIG SET tcp-keepalive 60",
    "a password": "CONFIG SET requirepass sesame | PING | QLEN | NOSUCH | HELLO | COMMAND | AUTH no | AUTH sesame"
        ' | PING | AUTH no | PING | AUTH sesame | CONFIG SET requirepass "" | PING',
    "the cluster": "HELLO | CLUSTER MYID | CLUSTER NODES | CLUSTER INFO | CLUSTER NODES x | CLUSTER MEET"
        " | CLUSTER MEET 127.0.0.1 x | CLUSTER MEET no.address 7711 | CLUSTER MEET 127.0.0.1 0"
        " | CLUSTER MEET 127.0.0.1 99999 | CLUSTER FORGET x"
        " | CLUSTER FORGET aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | CLUSTER RESET x"
        " | CLUSTER RESET SOFT HARD | CLUSTER SAVECONFIG | CLUSTER BOGUS | CLUSTER LEAVING"
        " | CLUSTER LEAVING x",
    "leaving": "j=ADDJOB q b 0 | > GETJOB FROM w | CLUSTER LEAVING yes | < | CLUSTER LEAVING | CLUSTER NODES | HELLO"
        " | ADDJOB q b 0 | ADDJOB q b 0 REPLICATE 2 | ADDJOB q b 0 TTL 0 | GETJOB FROM q | GETJOB FROM q"
        " | GETJOB NOHANG FROM q | NACK $j | QLEN q | ACKJOB $j | CLUSTER LEAVING no | CLUSTER LEAVING",
    "all jobs are lost": "j=ADDJOB q b 0 | PAUSE p in | > GETJOB FROM w | DEBUG FLUSHALL | < | QLEN q | SHOW $j | QSTAT q"
        " | PAUSE p state | INFO jobs | j=ADDJOB q b 0 | CLUSTER RESET | QLEN q",
}  # fmt: skip

KEPT_ONCE = "a job with RETRY 0 is finished before it leaves"
AS_REDIS = "HELLO with arguments, CLIENT ID and CLIENT SETINFO are as in Redis"
# By conversation and command: why the replies differ.
DIFFERENT: dict[tuple[str, str], str] = {
    ("numbers of more than 32 bits", "ADDJOB q b 0 TTL 4294967396"): "TTL is not cut to 32 bits",
    ("numbers of more than 32 bits", "ADDJOB q b 0 RETRY 4294967296"): "RETRY is not cut to 32 bits",
    ("retry 0", "ACKJOB $j"): KEPT_ONCE,
    ("retry 0, fetched", "WORKING $j"): KEPT_ONCE,
    ("retry 0, dequeued", "ENQUEUE $j"): "it was never delivered",
    ("retry 0, working", "QLEN q"): "it stays queued",
    ("facts of a queue", "QSTAT n"): "a GETJOB makes no queue",
    ("the connection", "CLIENT ID"): AS_REDIS,
    ("the connection", "HELLO 3"): AS_REDIS,
}


def words_of(command: str, ids: dict[str, str]) -> list[str]:
    found = re.findall(r'"([^"]*)"|(\S+)', command)
    return [ids.get(word[1:], word) if word.startswith("$") else word for word in (one[1] or one[0] for one in found)]


def masked(reply: Any, names: dict[bytes, bytes]) -> Any:
    """A reply without what no two servers have in common."""
    if isinstance(reply, str):
        return masked(reply.encode(), names).decode()
    if isinstance(reply, bytes):
        for text, name in names.items():
            reply = reply.replace(text, name)
        return re.sub(rb"D-[0-9a-f]{8}-.{24}-", b"D-", reply)
    if not isinstance(reply, list):
        return reply
    items = [masked(one, names) for one in reply]
    if items[:1] in ([b"id"], [b"name"]):
        facts = dict(zip(items[::2], items[1::2], strict=True))
        if facts.get(b"state") == b"queued":
            # retry counts from the delivery: there is no time when a queued job is queued again
            facts[b"next-requeue-within"] = facts[b"next-awake-within"] = None
        return {
            key: isinstance(value, int) if key in VOLATILE else value
            for key, value in facts.items()
            if key not in OTHERWISE
        }
    return items


def held(connect: Callable[[], Client], text: str) -> list[tuple[str, Any]]:
    """Hold a conversation; each command with its masked reply."""
    ids, said = {"u": UNKNOWN}, list[tuple[str, Any]]()
    with connect() as client, connect() as other:
        names = {client.do("CLUSTER", "MYID"): b"<node>", client.do("HELLO")[2][2]: b"<port>"}
        assert client.do("DEBUG", "FLUSHALL") == "OK"
        for command in text.split(" | "):
            if command.startswith("> "):
                other.send(*words_of(command[2:], ids))
                kept = client  # the server has read it when it counts a blocked client
                eventually(lambda kept=kept: b"blocked_clients:1" in kept.do("INFO", "clients"))
                continue
            if command == "<":
                said.append((command, masked(other.reply(), names)))
                continue
            name, _, rest = command.partition("=") if re.match(r"[a-z]=", command) else ("", "", command)
            reply = client.do(*words_of(rest, ids))
            if name:
                assert isinstance(reply, str)
                assert reply.startswith("D-"), (command, reply)
                ids[name] = reply
                names[reply.encode()] = f"<{name}>".encode()
            elif isinstance(reply, str) and reply.startswith("D-"):
                reply = f"an id that ends in {reply[-4:]}"
            said.append((command, masked(reply, names)))
    return said


@contextmanager
def original(path: Path) -> Iterator[Callable[[], Client]]:
    """Run the real Disque, and connect to it."""
    port = lease_port()
    process = subprocess.Popen(
        [ORIGINAL, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(path), "--loglevel", "warning"],
        stdout=subprocess.DEVNULL,
    )

    def answers() -> bool:
        with suppress(ConnectionError), Client(("127.0.0.1", port)) as client:
            return bool(client.do("PING") == "PONG")
        return False

    try:
        eventually(answers)
        yield lambda: Client(("127.0.0.1", port))
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Callable[[], Client], Callable[[], Client]]]:
    if not os.access(ORIGINAL, os.X_OK):
        pytest.skip("PENSTOCK_DISQUE=PATH does not name a real disque-server")
    with ExitStack() as stack:
        real = stack.enter_context(original(tmp_path_factory.mktemp("original")))
        tested = stack.enter_context(
            Server("--enable-debug-command", "yes", "--dir", str(tmp_path_factory.mktemp("tested")))
        )
        yield real, tested.client


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_same_conversation(both: tuple[Callable[[], Client], Callable[[], Client]], name: str) -> None:
    real, tested = (held(connect, CONVERSATIONS[name]) for connect in both)
    differ = {command: (one, other) for (command, one), (_, other) in zip(real, tested, strict=True) if one != other}
    chosen = {command for conversation, command in DIFFERENT if conversation == name}
    assert {command: replies for command, replies in differ.items() if command not in chosen} == {}
    assert chosen <= set(differ)  # otherwise it must not be listed
