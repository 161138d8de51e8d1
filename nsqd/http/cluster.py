"""/cluster and the routes below it: the nodes of the cluster, as this node knows them, and copies of their logs.

    {"name": "penstock", "node": 0, "nodes": [{"node": 0, "address": "127.0.0.1:4154", "http_address": "127.0.0.1:4151",
      "standing": "member", "connected": false, "suspected": false, "restarting": false, "incarnation": 1790000000,
      "log_id": "...", "lease": 16777217}, ...],
     "refused": [{"node": 3, "address": "127.0.0.1:4454", "reason": "node 3 must first be drained: ..."}, ...],
     "knows_configs": true, "copies": {"available": 2, "away": [2], "counting": [1], "replies_given_up": 0},
     "followers": [{"node": 1, "state": "in sync", "behind": 0, "written": 4711, "durable": 4711, "failure": ""}, ...],
     "replicas": [{"node": 1, "log_id": "...", "connected": true, "complete": true, "written": 815, "durable": 815,
      "opening": false, "failure": ""}, ...],
     "replica_failures": 0, "refusing": {"count": 1, "topics": ["orders"]},
     "led": [{"log_id": "...", "node": 0, "epochs": [["...", 0]], "end": 4711, "state": "serving"}, ...],
     "closed": [{"log_id": "...", "node": 1, "epochs": [["...", 0]], "end": 4711}, ...],
     "elections": {"quorum": "none", "won": {"clean": 0, "unclean": 0}, "failed": 0, "called_off": 0, "postponed": 0, "logs": [
       {"log_id": "...", "leader": 1, "epoch": 3, "leader_lost": false, "clean": true, "state": "", "voted": null,
        "reason": ""}, ...]},
     "failovers": {"last_seconds": null, "possible_duplicates": {"ready_again": 0, "unclean": 0, "unfinished": 0, "untold": 0,
       "moved": 0, "moved_all": 0, "salvaged": 0}},
     "diverged": [{"name": "replicas/ID.diverged-1", "log_id": "ID", "salvaged": true, "made": "...", "failure": ""}, ...]}

`connected` is false for the node that answers. `standing` is member, left or forgotten. `lease`: the message id of that node
below which ids may have been issued, as far as this node was told. `refused` are nodes that have the secret and are not
accepted by this node, or do not accept it, with the reason. `followers` are the nodes that keep a copy of this node's
log: their `state` is asked, catching up, in sync or failed, and `behind` is in bytes. `replicas` are the copies that this node
keeps of the logs of others; what one holds is not known while it is `opening`. Positions count the bytes of a log.
`knows_configs` is false until another node has told this one how topics are configured: until then it takes no message.
`copies`: how many copies of a message are possible now, this node's included; the nodes that shall keep a copy and have no
connection; those whose copies count for replies; how many replies were given up since the start, because no copy was made in
time. `refusing`: the topics to which nothing can be published because they ask for more copies, of which 100 are
named. `replica_failures`: how often this node gave up a replica for a while. `elections`: how many elections on logs of lost
nodes this node has won (clean: with a replica that has everything), has lost, has called off because the leader came back, and
has postponed because an nsqlookupd hears the leader. For each log
whose replica is here, or that had a candidate: its leader and its epoch, whether the leader is lost, whether the replica would
be promoted at once, what this node does (standing for election, promoting), what it has voted as [number, node], and why its
last election failed. `led` are the logs that this node leads, first that
into which it publishes, then those that it has promoted: `node` has published into it, `epochs` each tell where one begins, and
`state` is starting, waiting, reading, filling, attaching, serving, failed, lost or closed. `closed` are the logs that owe
nothing any more, and are removed: `node` led it last. `failovers`: how long the last failover by this node took, in
seconds, and how many messages may be delivered twice because a log has changed its leader; docs/guarantees.md
says what the reasons mean. `diverged`: copies with what the leader of their log may lack, by the names of their directories;
`made` is the log that was made of that, and is among `led`. A node that is in no cluster answers 404 NO_CLUSTER.

/cluster/replica?log=ID sends a replica as a tar stream. Unpacked, it is a data directory with which the leader of the log
starts again, and asks the other nodes first whether the log is still its own: cluster.json names them. With `from`, a position,
only what follows it is sent; a part that begins within a segment is named SEGMENT@OFFSET.

POST /cluster/forget?node=N says that a node will not come back. All nodes of the cluster are told; the answer,
{"forgotten": N}, comes when the node that is asked has it on disk. The log of the node is never taken back: a run of it is
refused. A new data directory may have the number again. 404 NODE_NOT_FOUND if no node has that number; 409 NODE_IS_CONNECTED if
the node is connected, or is not suspected yet, or is the one that is asked; 503 CANNOT_WRITE if it cannot be written: then
the node tries again.

POST /cluster/leave?limit=60s has the node that is asked leave the cluster for good: it takes no messages and delivers none,
waits for what is in flight, hands its logs over to nodes that have all of them, says that it has left, and ends 3 s later. GET
/cluster/leave tells how far it is:

    {"state": "transferring", "in_flight": 0, "logs": [{"log_id": "...", "asked": 2}], "lacking": [], "leaderless": []}

`state` is staying, waiting, handing over, telling, left or gave up; `logs` are those that are still to be handed over, with
the node that was asked last; `lacking` are those that got a leader which may lack messages that this node has, because it was
cut off; `unclaimed` are those of which it has a copy, and whose leader is lost: no node has taken them over. It gives up
after `limit` (a day at most, else 400 INVALID_ARG_LIMIT), or at the end if a log is `lacking`: then it ends as one that dies.

POST /cluster/promote?log=ID has the node that is asked stand for the log of a lost node, though its copy may lack messages that
were acknowledged, or that some were finished. The answer, {"log": "ID"}, says that it tries: other nodes
must promise as for any election, an nsqlookupd that hears the leader postpones it, and a node with a longer copy promotes the
log instead. /cluster tells what comes of it. 404 NO_REPLICA if the node has no whole copy; 409 OWNER_IS_THERE.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nsqd.core.cluster_view import ClusterView
from nsqd.core.retention.backup import BackupPart
from nsqd.http.archive import archive_size, stream_archive
from nsqd.http.arguments import bounded
from nsqd.http.node import Node
from shared.http.api import V1_HEADERS, Routes, json_response, query
from shared.http.errors import HttpError
from shared.log import log
from shared.values import SECOND, parse_duration, parse_int

MOST_NUMBER = 1023  # of a node
MOST_REFUSING = 100  # topics that are named
LEAVE_WITHIN = "60s"  # unless the request says otherwise
MOST_LIMIT = 24 * 3600 * SECOND


class ClusterRoute:
    """The routes about the cluster. Each answers 404 NO_CLUSTER on a node that is in none."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Return the path, its method and its handler."""
        return {
            "/cluster": {"GET": self.cluster},
            "/cluster/replica": {"GET": self.replica},
            "/cluster/forget": {"POST": self.forget},
            "/cluster/leave": {"GET": self.leaving, "POST": self.leave},
            "/cluster/promote": {"POST": self.promote},
        }

    async def cluster(self, request: Request) -> Response:
        """Answer what this node knows of the nodes of its cluster."""
        figures = await self._node.bridge.observe(self._figures)
        options = self._node.options
        return json_response({"name": options.cluster_name, "node": options.node_number(), **figures})

    def _figures(self) -> dict[str, Any]:
        refusing = sorted(name for name, topic in self._node.broker.topics.items() if topic.shut)
        return {
            **self._view().figures(),
            "refusing": {"count": len(refusing), "topics": refusing[:MOST_REFUSING]},
        }

    async def forget(self, request: Request) -> Response:
        """Have the cluster forget a node, and answer when this is durable here."""
        arguments = query(request)
        if "node" not in arguments:
            raise HttpError(400, "MISSING_ARG_NODE")
        number = bounded(arguments, "node", 0, MOST_NUMBER)
        is_kept = False

        def begin(then: Callable[[], None]) -> None:
            def kept(is_written: bool) -> None:
                nonlocal is_kept
                is_kept = is_written
                then()

            try:
                self._view().forget(number, kept)
            except KeyError:
                raise HttpError(404, "NODE_NOT_FOUND") from None
            except ValueError:
                raise HttpError(409, "NODE_IS_CONNECTED") from None

        await self._node.bridge.wait(begin)
        if not is_kept:
            raise HttpError(503, "CANNOT_WRITE")
        return json_response({"forgotten": number})

    async def leave(self, request: Request) -> Response:
        """Have this node leave the cluster, and answer how far that is."""
        try:
            limit = parse_duration(query(request).get("limit", LEAVE_WITHIN))
        except ValueError:
            raise HttpError(400, "INVALID_ARG_LIMIT") from None
        if not 0 < limit <= MOST_LIMIT:
            raise HttpError(400, "INVALID_ARG_LIMIT")
        await self._node.bridge.call(lambda: self._view().leave(limit))
        return await self.leaving(request)

    async def leaving(self, request: Request) -> Response:
        """Answer how far this node is with leaving the cluster."""
        return json_response(await self._node.bridge.observe(lambda: self._view().leaving_state()))

    async def promote(self, request: Request) -> Response:
        """Have this node stand for the log of a lost node, whatever its copy may lack."""
        log_id = _log_id(query(request))
        await self._node.bridge.observe(lambda: self._promote(log_id))
        log.warning(
            "HTTP: an operator ordered the promotion of log %s, even if the replica here lacks messages", log_id.hex()
        )
        return json_response({"log": log_id.hex()})

    def _promote(self, log_id: bytes) -> None:
        try:
            self._view().promote(log_id)
        except KeyError:
            raise HttpError(404, "NO_REPLICA") from None
        except ValueError:
            raise HttpError(409, "OWNER_IS_THERE") from None

    async def replica(self, request: Request) -> Response:
        """Answer the replica of a log as a tar stream that unpacks to a data directory."""
        arguments = query(request)
        log_id = _log_id(arguments)
        try:
            start = parse_int(arguments.get("from", "0"))
        except ValueError:
            raise HttpError(400, "INVALID_ARG_LOG") from None
        parts, beside = await self._node.bridge.observe(lambda: self._replica(log_id, start))
        headers = V1_HEADERS | {"Content-Length": str(archive_size(parts, beside))}
        return StreamingResponse(
            stream_archive(parts, beside, _nothing), media_type="application/x-tar", headers=headers
        )

    def _replica(self, log_id: bytes, start: int) -> tuple[Sequence[BackupPart], Mapping[str, bytes]]:
        """Return what ClusterView.replica does. Runs in the trio thread. Raises HttpError 404, 503."""
        try:
            return self._view().replica(log_id, start)
        except KeyError:
            raise HttpError(404, "NO_REPLICA") from None
        except OSError as error:
            log.error("HTTP: cannot read a replica: %s", error)
            raise HttpError(503, "CANNOT_READ") from None

    def _view(self) -> ClusterView:
        if self._node.cluster is None:
            raise HttpError(404, "NO_CLUSTER")
        return self._node.cluster


def _log_id(arguments: Mapping[str, str]) -> bytes:
    try:
        return bytes.fromhex(arguments["log"])
    except KeyError:
        raise HttpError(400, "MISSING_ARG_LOG") from None
    except ValueError:
        raise HttpError(400, "INVALID_ARG_LOG") from None


async def _nothing() -> None:
    """Do nothing before the next chunk: a replica is read without a limit of its rate."""
