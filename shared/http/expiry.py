"""The metric of certificates that end: PROGRAM_certificate_expiry_seconds, of every daemon."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from shared.tls_dates import CertificateDates

HELP = "Time until the certificate that an option names expires, negative afterwards"


def expiry(program: str, dates: CertificateDates | None) -> Iterator[Metric]:
    """Yield the metric of a daemon, without a series if it has no certificate."""
    family = GaugeMetricFamily(f"{program}_certificate_expiry_seconds", HELP, labels=["option"])
    for option, left in dates.left() if dates is not None else ():
        family.add_metric([option], left)
    yield family
