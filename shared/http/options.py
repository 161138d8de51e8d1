"""The routes /config/<option> of nsqd and nsqadmin: the format of values, and the options that can change."""

from __future__ import annotations

import json
import logging

from starlette.responses import Response

from shared.http.api import json_response, text_response
from shared.http.errors import HttpError
from shared.log import LEVELS, level_name, log
from shared.secrets import hide
from shared.text import without_surrogates

LOG_LEVEL = "log_level"
_GO_LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}


def go_log_level() -> int:
    """Return the current log level as Go's number."""
    return _GO_LEVELS[level_name()]


def set_log_level(body: bytes) -> None:
    """Set the log level of the process. Raises HttpError 400 INVALID_VALUE for an unknown level."""
    level = body.decode("latin-1").lower()
    if level not in LEVELS:
        raise HttpError(400, "INVALID_VALUE")
    logging.Logger.setLevel(log, LEVELS[level])


def read_addresses(body: bytes, most: int) -> list[str]:
    """Read a JSON list of at most `most` texts. Raises HttpError 400 INVALID_VALUE for anything else."""
    try:
        addresses = json.loads(body)
    except (ValueError, RecursionError):
        raise HttpError(400, "INVALID_VALUE") from None
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise HttpError(400, "INVALID_VALUE")
    if len(addresses) > most:
        raise HttpError(400, "INVALID_VALUE")
    return [without_surrogates(address) for address in addresses]


def option_response(value: object) -> Response:
    """Return strings as they are and all else as JSON, without secrets."""
    value = hide(value)
    if isinstance(value, str):
        return text_response(without_surrogates(value))  # argv may contain bytes that are not UTF-8
    return json_response(value)
