"""Options from environment variables: NSQD_MAX_MSG_SIZE for -max-msg-size. NSQ has no such variables.

An unknown name with our prefix causes a warning, unless it is one of those by which Kubernetes and Docker describe a
service called nsqd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shared.options import OptionError, SourceValues, Spec, nearest

_OF_A_SERVICE = re.compile(
    r"SERVICE_HOST|(SERVICE_)?PORT|SERVICE_PORT_\w+|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_HOST = "_SERVICE_HOST"
_SHOWN = 100  # characters of a name


def read_environment(known: Sequence[Spec], program: str, environ: Mapping[str, str]) -> SourceValues:
    """Read the variables of the options `known`. All errors and warnings are in the result."""
    values: dict[str, Any] = {}
    errors = []
    for spec in known:
        if spec.environment not in environ or spec.name == "version":  # images set NSQD_VERSION=1.3.0
            continue
        text = environ[spec.environment]
        try:
            values[spec.name] = spec.from_text(text)
        except ValueError as error:
            errors.append(OptionError(f'invalid value "{text}" for environment variable {spec.environment}: {error}'))
    return SourceValues(values, _unknown(known, f"{program.upper()}_", environ), errors)


def _unknown(known: Sequence[Spec], prefix: str, environ: Mapping[str, str]) -> list[str]:
    """Return a warning for each unknown name with the prefix. Values are not shown, because they may be secret."""
    names = {spec.environment for spec in known}
    services = [prefix, *(name.removesuffix("SERVICE_HOST") for name in environ if name.endswith(_SERVICE_HOST))]
    warnings = []
    for name in sorted(environ):
        if not name.startswith(prefix) or name in names or _is_of_a_service(name, services):
            continue
        meant = nearest(name.removeprefix(prefix), known)
        hint = f": did you mean {meant.environment}?" if meant else ""
        warnings.append(f"unknown environment variable {name[:_SHOWN]}{hint}")
    return warnings


def _is_of_a_service(name: str, services: Sequence[str]) -> bool:
    """Return True for NSQD_PORT_4150_TCP, and for NSQD_HTTP_PORT if NSQD_HTTP_SERVICE_HOST announces such a service."""
    return any(name.startswith(service) and _OF_A_SERVICE.fullmatch(name, len(service)) for service in services)
