"""What every route of nsqd's HTTP API needs, where there is an auth file.

A route that is not in the table cannot be served: the daemon does not start with one (shared/http/authorize.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.auth.verbs import Verb
from shared.http.authorize import OPEN, Need


def _topic(verb: Verb) -> Need:
    return Need(verb, "topic")


def _channel(verb: Verb) -> Need:
    return Need(verb, "topic", "channel")


_ADMIN = Need(Verb.ADMIN)
_DEBUG = {
    **{f"GET /debug/pprof/{name}": _ADMIN for name in ("", "cmdline", "goroutine", "heap", "profile", "block")},
    **{f"{method} /debug/pprof/symbol": _ADMIN for method in ("GET", "POST")},
    "GET /debug/pprof/threadcreate": _ADMIN,
    "PUT /debug/setblockrate": _ADMIN,
    "POST /debug/freememory": _ADMIN,
    "POST /debug/cluster/cut": _ADMIN,
    "POST /debug/cluster/heal": _ADMIN,
    "GET /debug/story": _ADMIN,
}

NEEDS: Mapping[str, Need] = {
    "GET /ping": OPEN,
    "GET /livez": OPEN,
    "GET /readyz": OPEN,
    "GET /info": OPEN,  # version and ports: clients need them to connect
    "GET /metrics": OPEN,
    "POST /pub": _topic(Verb.PUBLISH),
    "POST /mpub": _topic(Verb.PUBLISH),
    "GET /stats": _channel(Verb.STATS),
    "GET /config/{option}": _ADMIN,
    "PUT /config/{option}": _ADMIN,
    "POST /topic/create": _topic(Verb.CREATE),
    "POST /topic/delete": _topic(Verb.DELETE),
    "POST /topic/empty": _topic(Verb.DELETE),
    "POST /topic/pause": _topic(Verb.ACT),
    "POST /topic/unpause": _topic(Verb.ACT),
    "POST /channel/create": _channel(Verb.CREATE),
    "POST /channel/delete": _channel(Verb.DELETE),
    "POST /channel/empty": _channel(Verb.DELETE),
    "POST /channel/pause": _channel(Verb.ACT),
    "POST /channel/unpause": _channel(Verb.ACT),
    "GET /topic/config": _topic(Verb.STATS),
    "POST /topic/config": _topic(Verb.CONFIGURE),
    "GET /channel/buried": _channel(Verb.READ),
    "POST /channel/buried/finish": Need(Verb.ACT, "topic", "channel", finishing="id"),
    "POST /channel/buried/kick": _channel(Verb.ACT),
    "GET /topic/offsets": _topic(Verb.READ),
    "GET /topic/read": _topic(Verb.READ),
    "GET /backup": Need(Verb.ADMIN, has_bodies=True),
    "GET /cursors": Need(Verb.STATS),
    "GET /topic/cursors": _topic(Verb.STATS),
    "POST /topic/cursor": _topic(Verb.READ),
    "POST /topic/cursor/delete": _topic(Verb.CONFIGURE),
    "GET /channel/messages": Need(Verb.BROWSE, "topic", "channel", preview="preview", reading=("contains", "header")),
    "GET /channel/message": _channel(Verb.READ),
    "POST /channel/messages/finish": Need(Verb.ACT, "topic", "channel", finishing="offset"),
    "POST /channel/messages/requeue": _channel(Verb.ACT),
    "POST /channel/messages/kick": _channel(Verb.ACT),
    "POST /channel/messages/bury": _channel(Verb.ACT),
    "POST /channel/messages/move": Need(Verb.ACT, "topic", "channel", target="to"),
    "POST /client/disconnect": _channel(Verb.ACT),
    "GET /identities": Need(Verb.STATS),
    "GET /pauses": Need(Verb.STATS),
    "GET /node/drain": Need(Verb.STATS),
    "POST /node/drain": _ADMIN,
    "POST /node/undrain": _ADMIN,
    "GET /topic/series": _channel(Verb.STATS),
    "GET /storage": Need(Verb.STATS),
    "GET /channels/attention": Need(Verb.STATS),
    "GET /topics/figures": Need(Verb.STATS),
    "GET /topics/rows": Need(Verb.STATS),
    "GET /topic/ages": _topic(Verb.STATS),
    "GET /tubes": Need(Verb.STATS),
    "POST /tube/pause": Need(Verb.ACT, "tube"),
    "GET /tube/jobs": Need(Verb.BROWSE, "tube", preview="preview"),
    "POST /tube/jobs/delete": Need(Verb.DELETE, "tube"),
    "POST /tube/jobs/kick": Need(Verb.ACT, "tube"),
    "POST /tube/jobs/bury": Need(Verb.ACT, "tube"),
    "POST /tube/jobs/release": Need(Verb.ACT, "tube"),
    "GET /cluster": Need(Verb.STATS),
    "POST /cluster/forget": _ADMIN,
    "GET /cluster/leave": Need(Verb.STATS),
    "POST /cluster/leave": _ADMIN,
    "POST /cluster/promote": _ADMIN,
    **_DEBUG,
}


def needs(metrics_auth: bool) -> Mapping[str, Need]:
    """Return the table. `metrics_auth`: /metrics, which names topics, is not for everybody."""
    return {**NEEDS, "GET /metrics": Need(Verb.STATS)} if metrics_auth else NEEDS
