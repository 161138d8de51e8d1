"""The metric of certificates that end: PROGRAM_certificate_expiry_seconds, of every daemon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shared.tls.dates import CertificateDates

if TYPE_CHECKING:
    from prometheus_client import Metric

HELP = "Time until the certificate that an option names expires, negative afterwards"


def expiry(program: str, dates: CertificateDates | None) -> Iterator[Metric]:
    """Yield the metric of a daemon, without a series if it has no certificate."""
    from prometheus_client.core import GaugeMetricFamily  # only /metrics needs it, not the start

    family = GaugeMetricFamily(f"{program}_certificate_expiry_seconds", HELP, labels=["option"])
    for option, left in dates.left() if dates is not None else ():
        family.add_metric([option], left)
    yield family
