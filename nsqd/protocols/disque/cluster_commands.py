"""The command CLUSTER, and the nodes in HELLO: Disque's cluster mapped to that of the node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nsqd.protocols.disque import resp
from nsqd.protocols.disque.arguments import SYNTAX_ERROR, Refused
from nsqd.protocols.disque.context import Priority
from nsqd.protocols.disque.flush import flush
from nsqd.protocols.disque.jobs import end_waits

if TYPE_CHECKING:
    from nsqd.protocols.disque.client import Client
    from nsqd.protocols.disque.context import NodeFacts

HELLO_VERSION = 1
BAD_SUBCOMMAND = b"ERR Wrong CLUSTER subcommand or number of arguments"
BAD_WORD = b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
ALONE = b"ERR This node is in no cluster: start it with -cluster-address"
NO_RESET = b"ERR CLUSTER RESET would lose all jobs: to take a node out of the cluster use CLUSTER LEAVING yes or penstock leave"
_MOST_PORT = 65_535
_NUMBER = re.compile(rb"-?[0-9]{1,18}")
_FLAGS = {Priority.GOOD: "noflags", Priority.NO_LINK: "noflags", Priority.SUSPECTED: "fail?", Priority.GONE: "fail"}


def nodes_for_clients(client: Client) -> bytes:
    """Return the reply to Disque's HELLO: this node's id, and all nodes with their priorities."""
    context = client.context
    nodes = [
        resp.words([context.ids.node_id(node.number), node.ip.encode(), b"%d" % node.port, b"%d" % node.priority])
        for node in context.cluster.nodes()
    ]
    return resp.array([resp.integer(HELLO_VERSION), resp.bulk(context.ids.node_id(context.cluster.number)), *nodes])


def cluster_command(client: Client, arguments: list[bytes]) -> None:
    """Execute a subcommand of CLUSTER. Raises Refused."""
    context = client.context
    match arguments[1].lower(), arguments[2:]:
        case b"myid", []:
            client.reply(resp.bulk(context.ids.node_id(context.cluster.number)))
        case b"nodes", []:
            lines = [_line(client, node) for node in context.cluster.nodes()]
            client.reply(resp.bulk("".join(lines).encode()))
        case b"info", []:
            client.reply(resp.bulk(_info(client).encode()))
        case b"saveconfig", []:
            client.reply(resp.status(b"OK"))  # cluster.json is written with every change
        case b"meet", [ip, port]:
            _meet(client, ip, port)
        case b"forget", [node_id]:
            _forget(client, node_id)
        case b"leaving", words if len(words) < 2:
            _leaving(client, [word.lower() for word in words])
        case b"reset", words if [word.lower() for word in words] in ([], [b"soft"], [b"hard"]):
            if not context.has_debug or len(context.cluster.nodes()) > 1:
                raise Refused(NO_RESET)
            flush(client)
        case b"reset", [_]:
            raise Refused(SYNTAX_ERROR)
        case _:
            raise Refused(BAD_SUBCOMMAND)


def _line(client: Client, node: NodeFacts) -> str:
    is_own = node.number == client.context.cluster.number
    flags = ["myself"] if is_own else []
    if node.is_leaving:
        flags.append("leaving")
    if not flags:
        flags.append(_FLAGS[node.priority])
    link = "connected" if is_own or node.priority is Priority.GOOD else "disconnected"
    node_id = client.context.ids.node_id(node.number).decode()
    return f"{node_id} {node.ip}:{node.port} {','.join(flags)} {node.silent_since} {node.contact_at} {link}\n"


def _info(client: Client) -> str:
    nodes = client.context.cluster.nodes()
    reachable = sum(node.priority is Priority.GOOD for node in nodes[1:])
    fields = {
        "cluster_state": "ok",
        "cluster_known_nodes": len(nodes),
        "cluster_reachable_nodes": reachable,
        "cluster_size": len(nodes),
        "cluster_stats_messages_sent": 0,
        "cluster_stats_messages_received": 0,
    }
    return "".join(f"{key}:{value}\r\n" for key, value in fields.items())


def _meet(client: Client, ip: bytes, port: bytes) -> None:
    if _NUMBER.fullmatch(port) is None:
        raise Refused(b"ERR Invalid TCP port specified: " + port)
    address = ip.decode("latin-1")
    if not 0 < int(port) <= _MOST_PORT or not client.context.is_ip(address):
        raise Refused(b"ERR Invalid node address specified: %s:%s" % (ip, port))
    if not client.context.cluster.meet(address, int(port)):
        raise Refused(ALONE)
    client.reply(resp.status(b"OK"))


def _forget(client: Client, node_id: bytes) -> None:
    context = client.context
    if len(node_id) != 40:
        raise Refused(b"ERR Invalid node identifier")
    numbers = [node.number for node in context.cluster.nodes() if context.ids.node_id(node.number) == node_id]
    if not numbers:
        raise Refused(b"ERR Unknown node " + node_id)
    if numbers == [context.cluster.number]:
        raise Refused(b"ERR I tried hard but I can't forget myself...")
    why = context.cluster.forget(numbers[0])
    if why:
        raise Refused(b"ERR " + why.encode())
    client.reply(resp.status(b"OK"))


def _leaving(client: Client, words: list[bytes]) -> None:
    cluster = client.context.cluster
    is_leaving = cluster.nodes()[0].is_leaving
    match words:
        case []:
            client.reply(resp.status(b"yes" if is_leaving else b"no"))
        case [b"yes"]:
            why = "" if is_leaving else cluster.leave()
            if why:
                raise Refused(b"ERR " + why.encode())
            end_waits(client.context)
            client.reply(resp.status(b"OK"))
        case [b"no"]:
            why = cluster.stay() if is_leaving else ""
            if why:
                raise Refused(b"ERR " + why.encode())
            client.reply(resp.status(b"OK"))
        case _:
            raise Refused(BAD_WORD)
