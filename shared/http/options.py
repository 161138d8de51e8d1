"""What the routes /config/<option> of nsqd and nsqadmin have in common: the forms of values, and those that can be changed."""

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
    """The level in force, as Go has it."""
    return _GO_LEVELS[level_name()]


def set_log_level(body: bytes) -> None:
    """From now on. 400 INVALID_VALUE for what is none."""
    level = body.decode("latin-1").lower()
    if level not in LEVELS:
        raise HttpError(400, "INVALID_VALUE")
    logging.Logger.setLevel(log, LEVELS[level])


def read_addresses(body: bytes, most: int) -> list[str]:
    """A JSON list of texts. 400 INVALID_VALUE for what is none, or too long."""
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
    """Strings as they are, all else as JSON; without secrets."""
    value = hide(value)
    if isinstance(value, str):
        return text_response(without_surrogates(value))  # odd bytes in argv
    return json_response(value)
