"""-consumer-opt and -producer-opt: the options of go-nsq's Config, `name,value`, as far as this client has them.

Two tables list the options that are applied and those that are accepted and ignored, because ignoring them does no
harm. Every other option is unknown, or refused because ignoring it might do harm. A bool without a value means true.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.client import Consumer, Settings
from penstock.sansio.settings import CLIENT_NAME
from shared.options import option
from shared.values import parse_duration, parse_int, parse_text
from shared.version import NSQ_VERSION

MOST_SECRET = 4096  # characters
MAX_IN_FLIGHT = "max_in_flight"  # the calling program applies this one: it is an argument of the consumer


def _milliseconds(text: str) -> int:
    """Return the milliseconds in a Go duration, or in an integer: go-nsq accepts both."""
    return int(text) if text.lstrip("-").isdigit() else parse_duration(text) // 1_000_000


def _seconds(text: str) -> float:
    return _milliseconds(text) / 1000


def _bool(text: str) -> bool:
    return bool(parse_text(bool, text))


def _secret_in(path: str) -> str:
    """Return the secret in a file, without the line's end."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(MOST_SECRET).strip()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None


# Maps an option to the field of Settings and the function that reads its value.
APPLIED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "client_id": ("client_id", str),
    "hostname": ("hostname", str),
    "user_agent": ("user_agent", str),
    "heartbeat_interval": ("heartbeat_interval_ms", _milliseconds),
    "sample_rate": ("sample_rate", parse_int),
    "msg_timeout": ("msg_timeout_ms", _milliseconds),
    "output_buffer_size": ("output_buffer_size", parse_int),
    "output_buffer_timeout": ("output_buffer_timeout_ms", _milliseconds),
    "tls_v1": ("tls_v1", _bool),
    "tls_root_ca_file": ("tls_root_ca_file", str),
    "tls_insecure_skip_verify": ("tls_insecure_skip_verify", _bool),
    "tls_cert": ("tls_cert", str),
    "tls_key": ("tls_key", str),
    "tls_min_version": ("tls_min_version", str),
    "tls_security_level": ("tls_security_level", parse_int),  # an extension: go-nsq accepts any certificate
    "snappy": ("snappy", _bool),
    "deflate": ("deflate", _bool),
    "deflate_level": ("deflate_level", parse_int),
    "auth_secret": ("auth_secret", str),
    "auth_secret_file": ("auth_secret", _secret_in),  # an extension: every user of the machine can read command lines
    "skip_lookupd_authorization": ("lookupd_authorization", _bool),  # go-nsq's name: true shows it to nsqlookupd
    "dial_timeout": ("dial_timeout_s", _seconds),
    "read_timeout": ("read_timeout_s", _seconds),
    "write_timeout": ("write_timeout_s", _seconds),
    "lookupd_poll_interval": ("lookupd_poll_interval_s", _seconds),
    "lookupd_poll_jitter": ("lookupd_poll_jitter", float),
    "lookupd_poll_timeout": ("lookupd_poll_timeout_s", _seconds),
    "default_requeue_delay": ("default_requeue_delay_ms", _milliseconds),
    "max_requeue_delay": ("max_requeue_delay_ms", _milliseconds),
    "max_attempts": ("max_attempts", parse_int),
    "rdy_by_load": ("rdy_by_load", _bool),  # an extension
    "backoff_strategy": ("backoff_strategy", str),
    "backoff_multiplier": ("backoff_multiplier_s", _seconds),
    "max_backoff_duration": ("max_backoff_duration_s", _seconds),
}

# When go-nsq takes RDY away from idle connections, if there are more than max_in_flight: here they take turns.
HARMLESS: dict[str, Callable[[str], Any]] = {
    "low_rdy_idle_timeout": _milliseconds,
    "low_rdy_timeout": _milliseconds,
    "rdy_redistribute_interval": _milliseconds,
}

_BOOLS = ("tls_v1", "tls_insecure_skip_verify", "deflate", "snappy", "skip_lookupd_authorization", "rdy_by_load")
_REFUSED = ("local_addr",)


def split(text: str) -> tuple[str, ...]:
    """Return the values of one environment variable, which are separated by spaces, because each has a comma."""
    return tuple(text.split())


def check(pairs: Sequence[str]) -> str:
    """Return the reason why the values of one flag are wrong, or "" if they are right."""
    try:
        settings(pairs, "")
    except ValueError as error:
        return str(error)
    return ""


def settings(pairs: Sequence[str], program: str) -> tuple[Settings, int | None]:
    """Return the Settings that the `name,value` pairs make, and max_in_flight if they set it. Raises ValueError."""
    values: dict[str, Any] = {"user_agent": f"{program}/{NSQ_VERSION} {CLIENT_NAME}"}
    max_in_flight = None
    for name, text in _parsed(pairs):
        value = _read(name, text)
        if name == MAX_IN_FLIGHT:
            max_in_flight = value
        elif name in APPLIED:
            values[APPLIED[name][0]] = value
    return replace(Settings(), **values), max_in_flight


def _parsed(pairs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield option names with their values; a bool without a value yields "true". Raises ValueError."""
    for pair in pairs:
        name, comma, text = pair.partition(",")
        name = name.replace("-", "_")  # go-nsq accepts both spellings
        if not (name in APPLIED or name in HARMLESS or name in _REFUSED or name == MAX_IN_FLIGHT):
            form = "" if comma else " (expected name,value such as msg_timeout,2m)"
            raise ValueError(f"invalid option {name}{form}")
        if not comma and name not in _BOOLS:
            raise ValueError(f"option {name} needs a value: {name},<value>")
        yield name, text if comma else "true"


def _read(name: str, text: str) -> Any:
    if name in _REFUSED:
        raise ValueError(f"option {name}: this client cannot choose its local address")
    reader = parse_int if name == MAX_IN_FLIGHT else HARMLESS.get(name) or APPLIED[name][1]
    try:
        return reader(text)
    except ValueError as error:
        raise ValueError(f"option {name}: {error}") from None


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options of all tools that consume, by their flags."""

    version: bool = option(False, "print version string")
    max_in_flight: int = option(200, "max number of messages to allow in flight")
    nsqd_tcp_address: tuple[str, ...] = option((), "nsqd TCP address (may be given multiple times)")
    lookupd_http_address: tuple[str, ...] = option((), "lookupd HTTP address (may be given multiple times)")
    consumer_opt: tuple[str, ...] = option(
        (), "name,value of go-nsq's Config for consumers (may be given multiple times)", check=check, read=split
    )

    def consumer_settings(self, program: str) -> tuple[Settings, int]:
        """Return the Settings of the consumers and their max_in_flight, which -consumer-opt may set, too. Raises ValueError."""
        found, max_in_flight = settings(self.consumer_opt, program)
        return found, max_in_flight or self.max_in_flight

    def consumer(self, topic: str, channel: str, settings: Settings, max_in_flight: int) -> Consumer:
        """Return a consumer that is not connected yet. Raises ValueError."""
        return Consumer(topic, channel, self.nsqd_tcp_address, self.lookupd_http_address, max_in_flight, settings)
