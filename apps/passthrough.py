"""-consumer-opt and -producer-opt: the options of go-nsq's Config, `name,value`, as far as this client has them.

Three tables: what is applied, what is accepted because doing without it harms nobody, and what is refused because doing
without it would (a client told to encrypt must not go on in clear). Anything else is unknown. A bare bool means true.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from penstock.client import Settings
from penstock.client.settings import CLIENT_NAME
from shared.options import parse_duration, parse_int, parse_text
from shared.version import NSQ_VERSION

MAX_IN_FLIGHT = "max_in_flight"  # applied by the program: the consumer's own argument


def _milliseconds(text: str) -> int:
    """A Go duration, or an integer of milliseconds, as go-nsq takes both."""
    return int(text) if text.lstrip("-").isdigit() else parse_duration(text) // 1_000_000


def _seconds(text: str) -> float:
    return _milliseconds(text) / 1000


# option -> field of Settings, reader
_APPLIED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "client_id": ("client_id", str),
    "hostname": ("hostname", str),
    "user_agent": ("user_agent", str),
    "heartbeat_interval": ("heartbeat_interval_ms", _milliseconds),
    "sample_rate": ("sample_rate", parse_int),
    "msg_timeout": ("msg_timeout_ms", _milliseconds),
    "output_buffer_size": ("output_buffer_size", parse_int),
    "output_buffer_timeout": ("output_buffer_timeout_ms", _milliseconds),
    "dial_timeout": ("dial_timeout_s", _seconds),
    "read_timeout": ("read_timeout_s", _seconds),
    "write_timeout": ("write_timeout_s", _seconds),
    "lookupd_poll_interval": ("lookupd_poll_interval_s", _seconds),
    "lookupd_poll_jitter": ("lookupd_poll_jitter", float),
    "lookupd_poll_timeout": ("lookupd_poll_timeout_s", _seconds),
    "default_requeue_delay": ("default_requeue_delay_ms", _milliseconds),
    "max_requeue_delay": ("max_requeue_delay_ms", _milliseconds),
    "max_attempts": ("max_attempts", parse_int),
}

# Backing off and redistributing idle RDY: the programs here never fail a message, so there is nothing to slow down for.
_HARMLESS: dict[str, Callable[[str], Any]] = {
    "backoff_strategy": str,
    "max_backoff_duration": _milliseconds,
    "backoff_multiplier": _milliseconds,
    "low_rdy_idle_timeout": _milliseconds,
    "low_rdy_timeout": _milliseconds,
    "rdy_redistribute_interval": _milliseconds,
    "skip_lookupd_authorization": lambda text: parse_text(bool, text),
    "deflate_level": parse_int,  # without deflate it says nothing
}

_BOOLS = ("tls_v1", "tls_insecure_skip_verify", "deflate", "snappy", "skip_lookupd_authorization")
_REFUSED = {
    "tls_v1": "TLS",
    "tls_root_ca_file": "TLS",
    "tls_insecure_skip_verify": "TLS",
    "tls_cert": "TLS",
    "tls_key": "TLS",
    "tls_min_version": "TLS",
    "deflate": "compression",
    "snappy": "compression",
    "auth_secret": "AUTH",
    "local_addr": "a choice of the local address",
}


def check(words: Sequence[str]) -> str:
    """What is wrong with the words of one flag, or ""."""
    try:
        for name, text in _pairs(words):
            _read(name, text)
    except ValueError as error:
        return str(error)
    return ""


def settings(words: Sequence[str], program: str) -> tuple[Settings, int | None]:
    """The Settings that the words (checked) make, and max_in_flight if they name it."""
    values: dict[str, Any] = {"user_agent": f"{program}/{NSQ_VERSION} {CLIENT_NAME}"}
    max_in_flight = None
    for name, text in _pairs(words):
        value = _read(name, text)
        if name == MAX_IN_FLIGHT:
            max_in_flight = value
        elif name in _APPLIED:
            values[_APPLIED[name][0]] = value
    return replace(Settings(), **values), max_in_flight


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names with their values; a bool may stand without one."""
    for word in words:
        name, comma, text = word.partition(",")
        name = name.replace("-", "_")  # go-nsq takes either
        if not (name in _APPLIED or name in _HARMLESS or name in _REFUSED or name == MAX_IN_FLIGHT):
            raise ValueError(f"invalid option {name}")
        if not comma and name not in _BOOLS:
            raise ValueError(f"option {name} needs a value: {name},<value>")
        yield name, text if comma else "true"


def _read(name: str, text: str) -> Any:
    if name in _REFUSED:
        if name in _BOOLS and parse_text(bool, text) is False:
            return False
        raise ValueError(f"option {name}: this build does not have {_REFUSED[name]} yet")
    reader = parse_int if name == MAX_IN_FLIGHT else _HARMLESS.get(name) or _APPLIED[name][1]
    try:
        return reader(text)
    except ValueError as error:
        raise ValueError(f"option {name}: {error}") from None
