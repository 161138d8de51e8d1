"""The effects of leaving on a node's clients and logs. Implements nsqd.cluster.ownership.leaving.LeavingNode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nsqd.cluster.ownership.leaving import Leaving, LeavingState
from nsqd.cluster.promotion.diverged.salvage import Salvage
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication.copying import Copying
from nsqd.core.broker import Broker
from nsqd.core.observation.drain_status import count_finishable
from nsqd.storage.log.opening import OpenLog
from shared.log import log


class Departure:
    """Holds the clients of a node that leaves, reports on its logs, and ends its process."""

    def __init__(
        self,
        broker: Broker,
        own: OpenLog,
        copying: Copying,
        promotions: Promotions,
        salvage: Salvage,
        hold: Callable[[], object],
        end: Callable[[], None],
    ) -> None:
        """`own`: the log into which the node publishes; `hold` ends publishing and delivery, `end` the process."""
        self._broker, self._own, self._copying, self._promotions = broker, own, copying, promotions
        self._hold, self._end_process = hold, end
        self.unsettled = salvage.unsettled

    def hold(self) -> None:
        self._hold()
        self._broker.agenda.leave()
        log.info("CLUSTER: this node leaves the cluster: it takes no messages, delivers none, and transfers its logs")

    def in_flight(self) -> int:
        return count_finishable(self._broker)

    def whole_followers(self) -> Mapping[bytes, Sequence[int]]:
        return {log_id: one.whole_followers() for log_id, one in self._copying.leader_sides.items()}

    def promoting(self) -> Iterable[bytes]:
        return self._promotions.unannounced()

    def transfer(self, log_id: bytes) -> None:
        promoted = self._promotions.logs.get(log_id)
        is_own = log_id == self._own.identity.log_id
        opened = self._own if is_own else promoted.log if promoted is not None else None
        if opened is not None:
            opened.store.is_transferred = True

    def end(self, leaving: Leaving) -> None:
        if leaving.state is LeavingState.LEFT:
            log.info(
                "CLUSTER: this node has left the cluster, and ends; other nodes lead the logs in its data directory"
            )
        for log_id in leaving.lacking:
            log.error(
                "CLUSTER: this node ends, and has not left: the node that leads the log %s now may lack messages that are here",
                log_id.hex(),
            )
        if leaving.to_transfer:
            log.error("CLUSTER: this node ends as the leader of its log: no other node has promoted it in time")
        elif leaving.state is LeavingState.GAVE_UP and not leaving.lacking and not leaving.left_behind:
            log.error("CLUSTER: this node ends, and has not left: no other node is connected, so none would know it")
        if leaving.left_behind:
            behind = ", ".join(log_id.hex() for log_id in leaving.left_behind)
            log.error(
                "CLUSTER: this node ends, and has not left: it has a copy of the log, which no node leads: %s", behind
            )
        self._end_process()
