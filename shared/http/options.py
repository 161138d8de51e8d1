"""The routes /config/<option> of nsqd and nsqadmin: the format of values, and the options that can change."""

from __future__ import annotations

import contextlib
import json

from starlette.responses import Response

from shared.http.api import json_response, text_response
from shared.http.errors import HttpError
from shared.log import LEVELS, level_name, log
from shared.secrets import hide
from shared.text import without_surrogates

LOG_LEVEL = "log_level"


def go_log_level() -> int:
    """Return the current log level as Go's number."""
    return 1 + list(LEVELS).index(level_name())


def set_log_level(body: bytes) -> None:
    """Set the log level of the process. Raises HttpError 400 INVALID_VALUE for an unknown level."""
    level = body.decode("latin-1").lower()
    if level not in LEVELS:
        raise HttpError(400, "INVALID_VALUE")
    log.setLevel(LEVELS[level])


def read_addresses(body: bytes, most: int) -> list[str]:
    """Read a JSON list of at most `most` texts. Raises HttpError 400 INVALID_VALUE for anything else."""
    addresses = None
    with contextlib.suppress(ValueError, RecursionError):
        addresses = json.loads(body)
    if not isinstance(addresses, list) or len(addresses) > most or not all(isinstance(one, str) for one in addresses):
        raise HttpError(400, "INVALID_VALUE")
    return [without_surrogates(address) for address in addresses]


def option_response(value: object) -> Response:
    """Return strings as they are and all else as JSON, without secrets."""
    value = hide(value)
    if isinstance(value, str):
        return text_response(without_surrogates(value))  # argv may contain bytes that are not UTF-8
    return json_response(value)
