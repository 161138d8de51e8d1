"""The command CLIENT: the connections of clients of Disque."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsqd.protocols.disque import resp
from nsqd.protocols.disque.arguments import SYNTAX_ERROR, Refused, any_integer, timeout_of
from shared.values import SECOND

if TYPE_CHECKING:
    from nsqd.protocols.disque.client import Client

MOST_NAME = 512  # bytes
BAD_SUBCOMMAND = b"ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
BAD_NAME = b"ERR Client names cannot contain spaces, newlines or special characters."
LONG_NAME = b"ERR Client names have at most 512 bytes"
NO_PAUSE = b"ERR CLIENT PAUSE is not supported: pause queues with PAUSE, or drain the node with POST /node/drain"


def client_command(client: Client, arguments: list[bytes]) -> None:
    """Execute a subcommand of CLIENT. Raises Refused."""
    match arguments[1].lower(), arguments[2:]:
        case b"list", []:
            client.reply(resp.bulk(b"".join(_line(client, one) for one in client.context.clients())))
        case b"id", []:
            client.reply(resp.integer(client.number))
        case b"getname", []:
            client.reply(resp.bulk(client.name) if client.name else client.nil)
        case b"setname", [name]:
            client.name = checked_name(name)
            client.reply(resp.status(b"OK"))
        case b"setinfo", [_, _]:
            client.reply(resp.status(b"OK"))
        case b"reply", [word]:
            _silence(client, word)
        case b"kill", [address]:
            if not _kill(client, _Filters(0, address, skips_self=False)):
                raise Refused(b"ERR No such client")
            client.reply(resp.status(b"OK"))
        case b"kill", words if words:
            client.reply(resp.integer(_kill(client, _filters(words))))
        case b"pause", [time]:
            timeout_of(time)
            raise Refused(NO_PAUSE)
        case b"kill", _:
            raise Refused(SYNTAX_ERROR)
        case _:
            raise Refused(BAD_SUBCOMMAND)


def checked_name(name: bytes) -> bytes:
    """Return the name of a connection. Raises Refused if it is none."""
    if len(name) > MOST_NAME:
        raise Refused(LONG_NAME)
    if not all(0x21 <= byte <= 0x7E for byte in name):
        raise Refused(BAD_NAME)
    return name


def _address(client: Client) -> bytes:
    return client.remote_ip.encode() + b":" + client.port.encode()


def _line(asking: Client, one: Client) -> bytes:
    flags = (b"b" if one.is_blocked else b"") + (b"O" if one in asking.context.monitors else b"")
    age, idle = ((asking.now - since) // SECOND for since in (one.joined, one.last_input))
    size = one.outbox.unsent
    return b"id=%d addr=%s fd=0 name=%s age=%d idle=%d flags=%s qbuf=%d qbuf-free=0 obl=%d oll=0 omem=%d events=%s cmd=%s\n" % (
        one.number, _address(one), one.name, age, idle, flags or b"N", one.buffered, size, size, b"rw" if size else b"r",
        one.last_command or b"NULL",
    )  # fmt: skip


def _silence(client: Client, word: bytes) -> None:
    match word.lower():
        case b"on":
            client.silence = 0
            client.reply(resp.status(b"OK"))
        case b"off":
            client.silence = -1
        case b"skip":
            if not client.silence:
                client.silence = 1
        case _:
            raise Refused(SYNTAX_ERROR)


@dataclass(slots=True)
class _Filters:
    """Which connections a CLIENT KILL ends."""

    number: int = 0  # 0: any
    address: bytes | None = None
    skips_self: bool = True

    def choose(self, client: Client) -> bool:
        return self.number in (0, client.number) and self.address in (None, _address(client))


def _filters(words: list[bytes]) -> _Filters:
    """Read the options of a CLIENT KILL from left to right: of one that is given twice the last counts. Raises Refused."""
    filters = _Filters()
    for at in range(0, len(words), 2):
        match words[at].lower(), words[at + 1 : at + 2]:
            case b"id", [text]:
                filters.number = any_integer(text)
            case b"type", [text]:
                if text.lower() != b"normal":
                    raise Refused(b"ERR Unknown client type '%s'" % text)
            case b"addr", [text]:
                filters.address = text
            case b"skipme", [text] if text.lower() in (b"yes", b"no"):
                filters.skips_self = text.lower() == b"yes"
            case _:
                raise Refused(SYNTAX_ERROR)
    return filters


def _kill(client: Client, filters: _Filters) -> int:
    """End the connections that the filters choose. Returns how many."""
    clients = [one for one in client.context.clients() if one is not client or not filters.skips_self]
    found = list(filter(filters.choose, clients))
    for one in found:
        if one is client:
            client.outbox.end()
        else:
            one.break_off()
    return len(found)
