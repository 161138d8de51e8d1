"""When the certificates end that a daemon serves, shows or trusts: for -check-config, the log, metrics and alarms.

The files are those of every option whose name ends in one of OF_CERTIFICATE or OF_AUTHORITY. Of a certificate the first in the
file counts, which is the daemon's own; of authorities, the one that is valid for the longest time, since others in a bundle
may have ended. Times are s since the epoch.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from shared.counted import counted
from shared.log import log

DAY = 86_400  # s
SOON, VERY_SOON = 14 * DAY, 2 * DAY  # before its end a certificate is warned of, and is urgent
OF_CERTIFICATE, OF_AUTHORITY = "tls_cert", ("root_ca_file", "tls_ca")
LARGEST = 16 * 1024 * 1024  # bytes of a file
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]{1,100000})-----END CERTIFICATE-----")
_CHECKED_EVERY = 3600.0  # s


@dataclass(frozen=True, slots=True)
class Certificate:
    """The period in which a certificate of a daemon is valid, in s since the epoch."""

    option: str  # that names the file, such as tls-cert
    path: str
    begins: int
    ends: int

    def problem(self, now: float) -> str:
        """Return an error if it cannot be used now, or ""."""
        if now > self.ends:
            return f"--{self.option} {self.path}: the certificate expired on {date(self.ends)}: renew it"
        if now < self.begins:
            begin = date(self.begins)
            return f"--{self.option} {self.path}: the certificate is not valid before {begin}: check the clock"
        return ""

    def warning(self, now: float) -> str:
        """Return an error as `problem` does, a warning if it expires soon, or ""."""
        left = self.ends - now
        if left > SOON or self.problem(now):
            return self.problem(now)
        days = counted(round(left / DAY), "day") if left >= 2 * DAY else counted(round(left / 3600), "hour")
        return f"--{self.option} {self.path}: the certificate expires in {days}, on {date(self.ends)}: renew it"


def certificates_of(options: object) -> list[Certificate]:
    """Return the certificates that the options name. Files that cannot be read are left out: loading reports the reason."""
    found = []
    for one in fields(options):  # type: ignore[arg-type]
        is_authority = one.name.endswith(OF_AUTHORITY)
        path = getattr(options, one.name)
        if path and isinstance(path, str) and (is_authority or one.name.endswith(OF_CERTIFICATE)):
            dates = list(_dates_in(path))
            if dates:
                begins, ends = max(dates, key=lambda dates: dates[1]) if is_authority else dates[0]
                found.append(Certificate(one.name.replace("_", "-"), path, begins, ends))
    return found


class CertificateDates:
    """The certificates in use. A thread of its own warns of them in the log, once a day; other threads may read `all`."""

    def __init__(self, options: object, clock: Callable[[], float] = time.time) -> None:
        self._options = options
        self._clock = clock
        self._warned: dict[Certificate, int] = {}  # the day
        self.all = certificates_of(options)

    def reload(self) -> None:
        """Read the files again, which were loaded again."""
        self.all = certificates_of(self._options)

    def left(self) -> list[tuple[str, float]]:
        """Return for each option how many s its certificate is valid from now on; negative: it has expired."""
        now = self._clock()
        return [(one.option, one.ends - now) for one in self.all]

    def errors(self) -> list[str]:
        """Return a line for each certificate that cannot be used now."""
        now = self._clock()
        return [line for one in self.all if (line := one.problem(now))]

    def warnings(self) -> list[str]:
        """Return a line for each certificate that can be used now, and not for much longer."""
        now = self._clock()
        return [line for one in self.all if (line := one.warning(now)) and not one.problem(now)]

    def warn(self) -> None:
        """Log a line for each certificate that needs one, unless that was done today."""
        now = self._clock()
        today = int(now // DAY)
        for one in self.all:
            if (line := one.warning(now)) and self._warned.get(one) != today:
                log.log(40 if one.problem(now) else 30, "TLS: %s", line)
                self._warned[one] = today

    def start(self) -> None:
        """Begin to warn, now and from time to time, for as long as the process runs."""
        if self.all:
            threading.Thread(target=self._run, name="certificates", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.warn()
            time.sleep(_CHECKED_EVERY)


def date(at: int) -> str:
    """Return a time, s since the epoch, as text such as 2026-11-28 11:03:20 UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


# Reading dates


def _dates_in(path: str) -> Iterator[tuple[int, int]]:
    """Yield from when to when each certificate in a PEM file is valid. One that cannot be read is left out."""
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return
    for match in _PEM.finditer(content):
        try:
            yield validity(base64.b64decode(match[1]))
        except ValueError:  # also binascii.Error
            continue


def validity(der: bytes) -> tuple[int, int]:
    """Return from when to when a certificate is valid. Raises ValueError if it is none."""
    from cryptography.x509 import load_der_x509_certificate  # takes 0.1 s, which a daemon without certificates saves

    certificate = load_der_x509_certificate(der)
    return int(certificate.not_valid_before_utc.timestamp()), int(certificate.not_valid_after_utc.timestamp())
