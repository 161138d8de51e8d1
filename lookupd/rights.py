"""The right that every route of nsqlookupd's HTTP API needs, where there is an auth file. A route without one cannot be served.

Consumers look up the topics that they may consume, and nsqd asks for the channels of topics that it registers: so these two
routes are open to all known identities.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.auth.verbs import Verb
from shared.http.authorize import KNOWN, OPEN, Need

_STATS = Need(Verb.STATS)
NEEDS: Mapping[str, Need] = {
    "GET /ping": OPEN,
    "GET /livez": OPEN,
    "GET /readyz": OPEN,
    "GET /info": OPEN,
    "GET /metrics": OPEN,
    "GET /lookup": KNOWN,
    "GET /channels": KNOWN,
    "GET /topics": _STATS,
    "GET /topics/inactive": _STATS,
    "GET /nodes": KNOWN,
    "GET /debug": Need(Verb.ADMIN),
    "POST /topic/create": Need(Verb.CREATE, "topic"),
    "POST /topic/delete": Need(Verb.DELETE, "topic"),
    "POST /topic/tombstone": Need(Verb.ADMIN),
    "POST /channel/create": Need(Verb.CREATE, "topic", "channel"),
    "POST /channel/delete": Need(Verb.DELETE, "topic", "channel"),
}


def needs(metrics_auth: bool) -> Mapping[str, Need]:
    """Return the table. `metrics_auth`: /metrics, which names topics, needs a right, too."""
    return {**NEEDS, "GET /metrics": Need(Verb.STATS)} if metrics_auth else NEEDS
