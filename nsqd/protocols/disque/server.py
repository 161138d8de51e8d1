"""The commands about the connection and the process: AUTH, HELLO, MONITOR, COMMAND and others."""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import TYPE_CHECKING

from nsqd.protocols.disque import clients, cluster_commands, config, resp
from nsqd.protocols.disque.arguments import COMMANDS, NOT_AN_INTEGER, SYNTAX_ERROR, Command, Refused
from nsqd.protocols.disque.flush import flush
from nsqd.protocols.disque.info import info
from shared.values import SECOND
from shared.version import PENSTOCK_VERSION

if TYPE_CHECKING:
    from nsqd.protocols.disque.client import Client

MICROSECOND = 1_000  # ns
BAD_PASSWORD = b"ERR invalid password"
TOO_MANY = b"ERR too many connections"
WRONG_PASS = b"WRONGPASS invalid username-password pair or user is disabled."
NO_DEBUG = b"ERR DEBUG is switched off: it needs nsqd -debug-routes, or disque-server --enable-debug-command yes"
NO_SHUTDOWN = b"ERR SHUTDOWN is switched off here: stop the process by SIGTERM"
NO_AOF = b"ERR BGREWRITEAOF is not supported: jobs are in nsqd's commit log, which is cleaned up automatically"
_FLAGS = {  # as Disque has them, by command
    b"ping time hello show qlen qstat pause": (b"readonly", b"fast"),
    b"getjob ackjob fastack deljob dequeue working": (b"write", b"fast"),
    b"addjob enqueue nack": (b"write", b"denyoom", b"fast"),
    b"loadjob": (b"write",),
    b"slowlog qpeek qscan jscan": (b"readonly",),
    b"info command": (b"readonly", b"loading"),
    b"auth": (b"readonly", b"loading", b"fast"),
    b"monitor config cluster client bgrewriteaof": (b"readonly", b"admin"),
    b"shutdown latency": (b"readonly", b"admin", b"loading"),
    b"debug": (b"admin",),
}
_ESCAPED = {
    ord("\\"): b"\\\\", ord('"'): b'\\"', ord("\n"): b"\\n", ord("\r"): b"\\r", ord("\t"): b"\\t", 7: b"\\a", 8: b"\\b",
}  # fmt: skip
_SHOWN = [  # how MONITOR shows each byte
    _ESCAPED.get(byte) or (bytes((byte,)) if 0x20 <= byte < 0x7F else b"\\x%02x" % byte) for byte in range(256)
]
_FLAGS_OF = {name: flags for names, flags in _FLAGS.items() for name in names.split()}


# the client


def auth(client: Client, arguments: list[bytes]) -> None:
    """Execute an AUTH. A wrong password ends the rights of an earlier one."""
    if client.credential is not None:
        if not client.show_token(arguments[1]):
            raise Refused(TOO_MANY if client.credential.is_one_too_many else BAD_PASSWORD)
        client.reply(resp.status(b"OK"))
        return
    if not client.context.password:
        raise Refused(b"ERR Client sent AUTH, but no password is set")
    client.authorized = compare_digest(arguments[1], client.context.password)
    if not client.authorized:
        raise Refused(BAD_PASSWORD)
    client.reply(resp.status(b"OK"))


def hello(client: Client, arguments: list[bytes]) -> None:
    """Execute a HELLO: Disque's, which lists the nodes, or Redis' one, by which clients choose a version of RESP."""
    if len(arguments) == 1:
        if not client.authorized:
            raise Refused(b"NOAUTH Authentication required.")
        client.reply(cluster_commands.nodes_for_clients(client))
        return
    version = arguments[1]
    if not version.isdigit():
        raise Refused(b"ERR wrong number of arguments for 'hello' command")
    if version not in (b"2", b"3"):
        raise Refused(b"NOPROTO unsupported protocol version")
    _read_options(client, arguments[2:])
    if not client.authorized:
        raise Refused(b"NOAUTH HELLO must be called with the client already authenticated")
    is_third = version == b"3"
    client.nil = resp.NULL3 if is_third else resp.NIL
    client.nil_array = resp.NULL3 if is_third else resp.NIL_ARRAY
    fields = (
        (b"server", resp.bulk(b"disque")),
        (b"version", resp.bulk(PENSTOCK_VERSION.encode())),
        (b"proto", resp.integer(int(version))),
        (b"id", resp.integer(client.number)),
        (b"mode", resp.bulk(b"standalone")),
        (b"role", resp.bulk(b"master")),
        (b"modules", resp.array([])),
    )
    pairs = [(resp.bulk(name), value) for name, value in fields]
    client.reply(resp.mapping(pairs) if is_third else resp.array([part for pair in pairs for part in pair]))


def _read_options(client: Client, options: list[bytes]) -> None:
    """Apply AUTH and SETNAME of a HELLO. Raises Refused."""
    while options:
        match options[0].lower(), len(options):
            case b"auth", length if length >= 3:
                if client.credential is not None:
                    is_right = client.show_token(options[2])
                    if client.credential.is_one_too_many:
                        raise Refused(TOO_MANY)
                else:
                    is_right = not client.context.password or compare_digest(options[2], client.context.password)
                if not is_right:
                    raise Refused(WRONG_PASS)
                client.authorized = True
                options = options[3:]
            case b"setname", length if length >= 2:
                client.name = clients.checked_name(options[1])
                options = options[2:]
            case _:
                raise Refused(b"ERR Syntax error in HELLO option '%s'" % options[0])


def ping(client: Client, arguments: list[bytes]) -> None:
    """Execute a PING: answer PONG, or the given text."""
    if len(arguments) > 2:
        raise Refused(b"ERR wrong number of arguments for 'ping' command")
    client.reply(resp.bulk(arguments[1]) if len(arguments) == 2 else resp.status(b"PONG"))


def monitor(client: Client, arguments: list[bytes]) -> None:
    """Execute a MONITOR: send each command that is executed from now on."""
    if client not in client.context.monitors:
        client.context.monitors[client] = None
        client.reply(resp.status(b"OK"))


def monitored(wall: int, client: Client, command: bytes, arguments: list[bytes]) -> bytes:
    """Return the line for the monitors about a command, without passwords. `wall`: ns since the epoch."""
    if command in (b"auth", b"hello") or [word.lower() for word in arguments[1:3]] == [b"set", b"requirepass"]:
        arguments = [arguments[0], *[b"(redacted)"] * (len(arguments) - 1)]
    words = b" ".join(b'"%s"' % _quoted(word) for word in arguments)
    seconds, rest = divmod(wall, SECOND)
    address = client.remote_ip.encode() + b":" + client.port.encode()
    return resp.status(b"%d.%06d [%s] %s" % (seconds, rest // MICROSECOND, address, words))


def _quoted(word: bytes) -> bytes:
    return b"".join(map(_SHOWN.__getitem__, word))


# the server


def time(client: Client, arguments: list[bytes]) -> None:
    """Execute a TIME: s, and the us in it."""
    seconds, rest = divmod(client.broker.wall, SECOND)
    client.reply(resp.words([b"%d" % seconds, b"%d" % (rest // MICROSECOND)]))


def command(client: Client, arguments: list[bytes]) -> None:
    """Execute a COMMAND: list the commands."""
    match [argument.lower() for argument in arguments[1:]]:
        case []:
            client.reply(resp.array(map(_described, COMMANDS.values())))
        case [b"count"]:
            client.reply(resp.integer(len(COMMANDS)))
        case [b"info", *names]:
            found = [COMMANDS.get(name) for name in names]
            client.reply(resp.array(client.nil if one is None else _described(one) for one in found))
        case _:
            raise Refused(b"ERR Unknown subcommand or wrong number of arguments.")


def _described(one: Command) -> bytes:
    arity = 1 if one.name == b"hello" else one.arity
    numbers = [resp.integer(0)] * 3
    flags = resp.array(map(resp.status, _FLAGS_OF[one.name]))
    return resp.array([resp.bulk(one.name), resp.integer(arity), flags, *numbers])


def slowlog(client: Client, arguments: list[bytes]) -> None:
    """Execute a SLOWLOG. No single command is measured: /metrics has the durations of turns."""
    match arguments[1].lower(), len(arguments):
        case b"reset", 2:
            client.reply(resp.status(b"OK"))
        case b"len", 2:
            client.reply(resp.integer(0))
        case b"get", 2 | 3:
            if not arguments[-1].lstrip(b"-").isdigit() and len(arguments) == 3:
                raise Refused(NOT_AN_INTEGER)
            client.reply(resp.array([]))
        case _:
            raise Refused(b"ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.")


def latency(client: Client, arguments: list[bytes]) -> None:
    """Execute a LATENCY. No event is measured."""
    match arguments[1].lower(), len(arguments):
        case b"latest", 2:
            client.reply(resp.array([]))
        case b"history", 3:
            client.reply(resp.array([]))
        case b"reset", _:
            client.reply(resp.integer(0))
        case b"graph", 3:
            raise Refused(b"ERR No samples available for event '%s'" % arguments[2])
        case b"doctor", 2:
            client.reply(resp.bulk(b"No event is measured here: see /metrics of nsqd.\n"))
        case _:
            raise Refused(SYNTAX_ERROR)


def debug(client: Client, arguments: list[bytes]) -> None:
    """Execute a DEBUG: FLUSHALL, which deletes all jobs, and ERROR."""
    match arguments[1].lower(), len(arguments):
        case b"flushall", _:
            if not client.context.has_debug:
                raise Refused(NO_DEBUG)
            flush(client)
        case b"error", 3:
            client.reply(resp.error(arguments[2]))
        case _:
            text = b"ERR Unknown DEBUG subcommand or wrong number of arguments for '%s'"
            raise Refused(text % arguments[1])


def shutdown(client: Client, arguments: list[bytes]) -> None:
    """Execute a SHUTDOWN: end the process without a reply."""
    if len(arguments) > 2 or (len(arguments) == 2 and arguments[1].lower() != b"rewrite-aof"):
        raise Refused(SYNTAX_ERROR)
    if client.context.stop is None:
        raise Refused(NO_SHUTDOWN)
    client.outbox.break_off()
    client.context.stop()


def bgrewriteaof(client: Client, arguments: list[bytes]) -> None:
    """Refuse a BGREWRITEAOF: there is no such file."""
    raise Refused(NO_AOF)


def loadjob(client: Client, arguments: list[bytes]) -> None:
    """Refuse a LOADJOB, as Disque does."""
    raise Refused(b"ERR LOADJOB is a special command only processed from AOF")


HANDLERS: dict[bytes, Callable[[Client, list[bytes]], None]] = {
    b"auth": auth,
    b"hello": hello,
    b"ping": ping,
    b"monitor": monitor,
    b"time": time,
    b"command": command,
    b"slowlog": slowlog,
    b"latency": latency,
    b"debug": debug,
    b"shutdown": shutdown,
    b"bgrewriteaof": bgrewriteaof,
    b"loadjob": loadjob,
    b"info": info,
    b"client": clients.client_command,
    b"config": config.config_command,
    b"cluster": cluster_commands.cluster_command,
}
