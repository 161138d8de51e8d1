"""/cluster and the routes below it: the nodes of the cluster, as this node knows them.

    {"name": "penstock", "node": 0, "nodes": [{"node": 0, "address": "127.0.0.1:4154", "http_address": "127.0.0.1:4151",
      "standing": "member", "connected": false, "suspected": false, "restarting": false, "incarnation": 1790000000,
      "log_id": "...", "lease": 16777217}, ...],
     "refused": [{"node": 3, "address": "127.0.0.1:4454", "reason": "node 3 must first be drained: ..."}, ...],
     "knows_configs": true, "copies": {"available": 2, "away": [2], "counting": [1], "replies_given_up": 0},
     "followers": [{"node": 1, "state": "in sync", "behind": 0, "lag_seconds": 0.0, "written": 4711, "durable": 4711,
      "failure": ""}, ...],
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

* `nodes`: `connected` is false for the responding node. `standing` is member, left or forgotten. `lease` is the message id
  below which that node may have issued ids, as far as this node knows.
* `refused`: nodes that have the secret and are not accepted by this node, or do not accept it, with the reason.
* `knows_configs`: false until this node has the topics' configurations from another one; until then it takes no messages.
* `copies`: how many copies of a message are possible, this node's included; `away`: the assigned followers without a
  connection; `counting`: the in-sync followers; the number of replies given up since the start, because no copy was made in
  time.
* `followers`: the nodes that keep a replica of this node's log. `state` is asked, catching up, in sync, lagging (for more than
  5 s) or failed; `behind` is in bytes; `lag_seconds` is the age of the oldest byte that the follower has not confirmed.
  Positions count the bytes of a log.
* `replicas`: those that this node keeps of the logs of others; their content is not known while they are `opening`.
  `replica_failures`: how often this node stopped a replica for a while.
* `refusing`: the topics that refuse publishes because they ask for more copies, of which 100 are named.
* `led`: the logs that this node leads, first the one into which it publishes, then the promoted ones. `node` has published
  into it, `epochs` have the position where each begins, and `state` is starting, waiting, reading, filling, attaching,
  serving, failed, lost or closed. A promoted log stays, even without messages, while it has `batches` that are not done.
* `closed`: the logs without unfinished messages, which are removed; `node` led it last.
* `elections`: how many this node has won (clean: with a complete replica), lost, called off because the leader came back, and
  postponed because an nsqlookupd is in contact with the leader. For each log with a replica here, or with a candidate: its
  leader and epoch, whether the leader is lost, whether the replica would be promoted at once (`clean`), the state of this node
  (candidate, promoting), its vote as [number, node], and why its last election failed.
* `failovers`: the duration of this node's last failover, in s, and the messages that may be delivered twice because a log has
  another leader; docs/explanation/guarantees.md explains the reasons.
* `diverged`: copies with bytes that the leader of their log may lack, by the names of their directories; `made` is the log
  that was made of them, and is among `led`.

A node that is in no cluster returns 404 NO_CLUSTER.

POST /cluster/forget?node=N forgets a node that will not come back. All nodes of the cluster are notified; the response,
{"forgotten": N}, comes when this node has it on disk. The log of the node is never accepted again: a run of it is
refused. A new data directory may have the number again. 404 NODE_NOT_FOUND if no node has that number; 409 NODE_IS_CONNECTED if
the node is connected, or is not suspected yet, or is this node; 503 CANNOT_WRITE if it cannot be written: then
the node tries again.

With POST /cluster/leave?limit=60s this node leaves the cluster permanently: it takes no messages and delivers none,
waits for messages in flight at connected consumers, transfers its logs to nodes that have all of them, announces that it has
left, and ends 3 s later. GET /cluster/leave returns the progress:

    {"state": "handing over", "in_flight": 0, "logs": [{"log_id": "...", "asked": 2}], "lacking": [], "leaderless": []}

`state` is staying, waiting, handing over, telling, left or gave up; `logs` are those that are still to be transferred, with
the node that was asked last; `lacking` are those that another node leads, perhaps without messages that this node has;
`leaderless` are those of which it has a copy, and whose leader is lost, or not connected. It leaves when all three are empty.
After `limit` (a day at most, else 400 INVALID_ARG_LIMIT), or if another node has promoted a log of this one without a part of
it, it ends without leaving.

With POST /cluster/promote?log=ID this node becomes a candidate for the log of a lost node, though its replica may lack
acknowledged messages, or finishes. The response, {"log": "ID"}, means that it tries: other nodes
must vote as in any election, an nsqlookupd that is in contact with the leader postpones it, and a node with a longer replica
promotes the log instead. /cluster shows the result. 404 NO_REPLICA if the node has no whole copy; 409 OWNER_IS_THERE.
"""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.cluster_view import ClusterView
from nsqd.http.node import Node
from shared.http.api import json_response
from shared.http.argument import Argument, bounded, duration
from shared.http.errors import HttpError
from shared.http.route import ADMIN, STATS, Route
from shared.log import log as logger
from shared.values import SECOND

MOST_NUMBER = 1023  # of a node
MOST_REFUSING = 100  # topics that are named
LEAVE_WITHIN = 60 * SECOND  # unless the request says otherwise
MOST_LIMIT = 24 * 3600 * SECOND


class ClusterRoute:
    """The routes about the cluster. Each answers 404 NO_CLUSTER on a node that is in none."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /cluster", self.cluster, STATS, (), "Return what the node knows of the nodes of its cluster"),
            Route("POST /cluster/forget", self.forget, ADMIN, (bounded("node", MOST_NUMBER),),
                  "Have the cluster forget a node that will not come back"),
            Route("GET /cluster/leave", self.leaving, STATS, (), "Return how far the node is with leaving the cluster"),
            Route("POST /cluster/leave", self.leave, ADMIN, (duration("limit", LEAVE_WITHIN, 1, MOST_LIMIT),),
                  "Have the node hand its logs over, leave the cluster permanently, and end"),
            Route("POST /cluster/promote", self.promote, ADMIN, (Argument("log", bytes.fromhex, expected="an id in hex"),),
                  "Have the node promote the log of a lost node, even if its replica may lack messages"),
        ]  # fmt: skip

    async def cluster(self, request: Request) -> Response:
        """Answer what this node knows of the nodes of its cluster."""
        figures = await self._node.bridge.observe(self._figures)
        options = self._node.options
        return json_response({"name": options.cluster_name, "node": options.node_number(), **figures})

    def _figures(self) -> dict[str, Any]:
        refusing = sorted(name for name, topic in self._node.broker.topics.items() if topic.lacks_copies)
        return {**self._view().figures(), "refusing": {"count": len(refusing), "topics": refusing[:MOST_REFUSING]}}

    async def forget(self, request: Request, node: int) -> Response:
        """Have the cluster forget a node, and answer when this is durable here."""

        def begin(kept: Callable[[bool], None]) -> None:
            try:
                self._view().forget(node, kept)
            except KeyError:
                raise HttpError(404, "NODE_NOT_FOUND") from None
            except ValueError:
                raise HttpError(409, "NODE_IS_CONNECTED") from None

        if not await self._node.bridge.wait(begin):
            raise HttpError(503, "CANNOT_WRITE")
        return json_response({"forgotten": node})

    async def leave(self, request: Request, limit: int) -> Response:
        """Have this node leave the cluster within `limit` ns, and answer how far that is."""
        await self._node.bridge.call(lambda: self._view().leave(limit))
        return await self.leaving(request)

    async def leaving(self, request: Request) -> Response:
        """Answer how far this node is with leaving the cluster."""
        return json_response(await self._node.bridge.observe(lambda: self._view().leaving_state()))

    async def promote(self, request: Request, log: bytes) -> Response:
        """Begin an election for the log with this id, of a lost node, even if the replica here may lack messages."""
        await self._node.bridge.observe(lambda: self._promote(log))
        logger.warning(
            "HTTP: an operator ordered the promotion of log %s, even if the replica here lacks messages", log.hex()
        )
        return json_response({"log": log.hex()})

    def _promote(self, log_id: bytes) -> None:
        try:
            self._view().promote(log_id)
        except KeyError:
            raise HttpError(404, "NO_REPLICA") from None
        except ValueError:
            raise HttpError(409, "OWNER_IS_THERE") from None

    def _view(self) -> ClusterView:
        if self._node.cluster is None:
            raise HttpError(404, "NO_CLUSTER")
        return self._node.cluster
