"""The token and the TLS with which Spark's tasks ask nsqd and nsqlookupd: environment variables name the files.

They are no options of a query, because Spark shows those in plans and in its web UI. The driver and the executors need them;
for these, `spark.executorEnv.PENSTOCK_AUTH_TOKEN_FILE` sets the variable.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

TOKEN_FILE, CA_FILE = "PENSTOCK_AUTH_TOKEN_FILE", "PENSTOCK_TLS_ROOT_CA_FILE"
MOST_TOKEN = 4096  # characters


@dataclass(frozen=True, slots=True)
class Access:
    """The token and the authority of a process."""

    token: str = ""  # "": none
    authority: str = ""  # path of the certificate authority; "": there is no TLS

    def __repr__(self) -> str:
        return f"Access(token={'...' if self.token else ''!r}, authority={self.authority!r})"

    def headers(self) -> dict[str, str]:
        """Return the headers with the token."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None: there is no TLS. Raises OSError."""
        return ssl.create_default_context(cafile=self.authority) if self.authority else None


def access(environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access that the environment of this process names. Raises OSError."""
    token = ""
    if path := environment.get(TOKEN_FILE, ""):
        with open(path, encoding="utf-8") as file:
            token = file.read(MOST_TOKEN).strip()
    return Access(token, environment.get(CA_FILE, ""))
