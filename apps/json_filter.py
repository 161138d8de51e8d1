"""nsq_to_nsq's filters of JSON messages: -require-json-field, -require-json-value and -whitelist-json-field.

Pure. The result is published as by the original: keys in order, no spaces, and numbers, strings and escapes in the
form of Go's encoder, with one deliberate difference: an integer keeps all of its digits, where the original rounds those
beyond 2^53. A body is undecodable that is no JSON object (or null), or that is nested deeper than Python parses, some
1,000 levels (the original: 10,000).
"""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum, auto
from math import isinf
from typing import Any

_LARGEST_PLAIN = 1e21  # Go writes larger numbers, and those below 1e-6, with an exponent
_GO_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING_OR_SMALL = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9.]+e-[0-9]+')
_ESCAPES = (("<", r"\u003c"), (">", r"\u003e"), ("&", r"\u0026"), ("\u2028", r"\u2028"), ("\u2029", r"\u2029"))


class Drop(Enum):
    """Why a message is not published."""

    UNDECODABLE = auto()  # no JSON object: finish it, and log it
    UNWANTED = auto()  # the required field or value is not there: finish it
    NO_FIELD = auto()  # no required field, whose value should be compared: requeue it, as the original does


class JsonFilter:
    """The filter of one run. `field` or `whitelist` must not be empty; `value` only counts with a `field`."""

    def __init__(self, field: str, value: str, whitelist: Sequence[str]) -> None:
        self._field = field
        self._value = value
        self._number = float(value) if _GO_NUMBER.fullmatch(value) else None
        self._whitelist = tuple(whitelist)

    def apply(self, body: bytes) -> bytes | Drop:
        """Return the body to publish in place of `body`, or the reason to publish nothing."""
        try:
            fields = _parse(body)
            if self._field and (drop := self._judge(fields)) is not None:
                return drop
            if not self._whitelist:
                return body
            return _encode({name: fields[name] for name in self._whitelist if name in fields})
        except (ValueError, RecursionError):
            return Drop.UNDECODABLE

    def _judge(self, fields: dict[str, Any]) -> Drop | None:
        if self._field not in fields:
            return Drop.NO_FIELD if self._value else Drop.UNWANTED
        if not self._value:
            return None
        found = fields[self._field]
        if isinstance(found, str):
            return None if found == self._value else Drop.UNWANTED
        if type(found) not in (int, float) or self._number is None or found != self._number:
            return Drop.UNWANTED
        return None


def _parse(body: bytes) -> dict[str, Any]:
    """Return the object in `body`; null is an empty one, as in Go. Raises ValueError, RecursionError."""
    value = json.loads(body.decode("utf-8", "replace"), parse_float=_number, parse_constant=_refuse)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _number(text: str) -> float | int:
    """Return an int for a whole number that Go writes without an exponent. Raises ValueError out of a float's range."""
    value = float(text)
    if isinf(value):
        raise ValueError(text)
    if value.is_integer() and abs(value) < _LARGEST_PLAIN:
        return int(Decimal(repr(value)))  # int(value) would add digits that the shortest form does not have
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _encode(fields: dict[str, Any]) -> bytes:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    if "e-" in text:
        text = _STRING_OR_SMALL.sub(_in_go_form, text)
    for character, escape in _ESCAPES:  # these are only within strings
        text = text.replace(character, escape)
    return _SURROGATE.sub("\ufffd", text).encode()


def _in_go_form(match: "re.Match[str]") -> str:
    """Return a string unchanged, and a number below 1e-4 as Go writes it: 0.00001, 1e-7."""
    text = match[0]
    if text[0] == '"':
        return text
    mantissa, _, exponent = text.partition("e-")
    return f"{Decimal(text):f}" if int(exponent) <= 6 else f"{mantissa}e-{int(exponent)}"
