"""The metrics that every daemon has: of its process, and PROGRAM_certificate_expiry_seconds of its certificates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shared.tls.dates import CertificateDates

if TYPE_CHECKING:
    from prometheus_client import Metric

HELP = "Time until the certificate that an option names expires, negative afterwards"


def process_families(program: str, dates: CertificateDates | None) -> Iterator[Metric]:
    """Yield CPU time, memory, descriptors and start of this process, and when its certificates expire. `dates`: None: never."""
    from prometheus_client import ProcessCollector  # only /metrics needs it, not the start
    from prometheus_client.core import GaugeMetricFamily

    yield from ProcessCollector(registry=None).collect()
    family = GaugeMetricFamily(f"{program}_certificate_expiry_seconds", HELP, labels=["option"])
    for option, left in dates.left() if dates is not None else ():
        family.add_metric([option], left)
    yield family
