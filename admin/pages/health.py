"""GET /livez, /readyz and /info for monitoring, and the page /health: the state of nsqadmin itself.

nsqadmin is ready if it can show the cluster: at least one nsqlookupd (or configured nsqd) answers. A broken audit or users
file hinders no page; /health says so.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import asdict, dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from admin.nodes.cluster import AllFailed
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import count, duration, size
from admin.output.failures import in_words
from admin.output.layout import MOST_STREAMS, Fields
from admin.output.site import Site
from shared.http.api import LIVE_TIMEOUT, Routes, json_response, plain
from shared.process.memory import resident_bytes
from shared.values import SECOND
from shared.version import NSQ_VERSION, PENSTOCK_VERSION, version_words

_NO_AUDIT_FILE = "none: the audit log is in memory only"


@dataclass(slots=True)
class Health:
    """The handlers of the health routes."""

    site: Site
    started: float = field(default_factory=time.time)  # s since the epoch

    def routes(self) -> Routes:
        """Return the handlers of every path, by method."""
        page = self.site.renderer.page_handler(self.page)
        handlers = {"/livez": self.livez, "/readyz": self.readyz, "/info": self.info, "/health": page}
        return {path: {"GET": handler} for path, handler in handlers.items()}

    async def livez(self, request: Request) -> Response:
        """Answer 200 while the event loop serves requests."""
        return plain(200, "OK")

    async def readyz(self, request: Request) -> Response:
        """Answer 200 while nsqadmin can show the cluster, otherwise 503 with the reason."""
        obstacle = await self._obstacle()
        return plain(503, f"NOK - {obstacle}") if obstacle else plain(200, "OK")

    async def info(self, request: Request) -> Response:
        """Answer the version and when nsqadmin started."""
        answer = {"version": NSQ_VERSION, "hostname": socket.gethostname(), "start_time": int(self.started)}
        return json_response(answer)

    async def page(self, request: Request) -> Fields:
        """Show the state of nsqadmin itself."""
        budget, times = self.site.queries.direct.answer_budget, self.site.queries.direct.answer_times.all()
        audit, users = self.site.audit, self.site.access.users
        checks = [  # name, problem ("" if it works), and what to show if it works
            ("Cluster", await self._obstacle(), "answers"),
            ("Audit file", await asyncio.to_thread(audit.problem), "writable" if audit.path else _NO_AUDIT_FILE),
            ("Users", users.problem if users is not None else "", "valid" if users is not None else "none"),
        ]
        return {
            "page_of": "health",
            "title": "Health of nsqadmin",
            "figures": [
                ("Version", version_words(NSQ_VERSION, PENSTOCK_VERSION)),
                ("Uptime", duration(int((time.time() - self.started) * SECOND))),
                ("Memory", size(resident_bytes())),
                ("Memory of nodes' answers", f"{size(budget.held)} of {size(budget.most_held)}"),
                ("Cached answers", count(len(self.site.queries.cache))),
                ("Live pages", f"{self.site.renderer.open_streams} of {MOST_STREAMS}"),
                ("Sessions", count(len(self.site.access.sessions))),
            ],
            "checks": checks,
            "times": times,
            "table": [asdict(one) for one in times],
        }

    async def _obstacle(self) -> str:
        """Return the reason for which the cluster cannot be shown, or ""."""
        try:
            async with asyncio.timeout(LIVE_TIMEOUT):
                await self.site.queries.producers()
        except TimeoutError:
            return f"no node answered within {LIVE_TIMEOUT:g} s"
        except (AllFailed, UpstreamError) as failed:
            return in_words(str(failed))
        return ""
