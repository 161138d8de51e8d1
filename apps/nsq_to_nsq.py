"""nsq_to_nsq: publish the messages of one or more topics to other nsqds.

Invariant: a message is finished when a destination has answered OK for it, or when a filter drops it; otherwise it is
requeued. Messages that have arrived together are published together (MPUB), over CONNECTIONS connections to each destination.

Deliberate differences from the original:
* an unknown -mode is an error (the original takes it for round-robin), and so is a negative -status-every;
* a source that cannot be reached at the start is retried, like one that goes away later;
* a message that a destination refuses, such as one that is too large, neither makes the destination count as failed nor
  the consumer back off;
* a message is not finished after five failed attempts, unless -consumer-opt=max_attempts,5 says so;
* a destination that is given twice counts once;
* the log counts the messages that are no JSON, and does not quote all of them.

See docs/reference/tools.md#nsq_to_nsq.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from apps import passthrough
from apps.destinations import check_mode, destinations
from apps.forwarding import run_consumers, touch_interval
from apps.json_filter import JsonFilter
from apps.passthrough import ConsumerOptions
from apps.republishing import CONNECTIONS, Publisher, Republishing
from apps.timings import Status, check_every
from apps.tool import check_given, check_no_scheme, check_source, run_program
from apps.workers import Waker, Workers
from penstock.client import Producer
from penstock.protocol import is_valid_name
from shared.options import option

PROGRAM = "nsq_to_nsq"


@dataclass(frozen=True, slots=True)
class Options(ConsumerOptions):
    """The options of nsq_to_nsq, by their flags."""

    topic: tuple[str, ...] = option((), "NSQ topic (may be given multiple times)")
    channel: str = option("nsq_to_nsq", "NSQ channel")
    destination_topic: str = option(
        "", "use this destination topic for all consumed topics (default: the name of the consumed topic)"
    )
    max_in_flight: int = option(200, "max number of messages to allow in flight, for each topic")
    status_every: int = option(
        250, "number of requests between two lines of status for each destination (0: none)", check=check_every
    )
    mode: str = option(
        "hostpool", "choice of the destination: round-robin, hostpool or epsilon-greedy", check=check_mode
    )
    require_json_field: str = option("", "for JSON messages: only pass messages that contain this field")
    require_json_value: str = option(
        "", "for JSON messages: only pass messages in which the required field has this value"
    )
    whitelist_json_field: tuple[str, ...] = option(
        (), "for JSON messages: pass this field (may be given multiple times)"
    )
    destination_nsqd_tcp_address: tuple[str, ...] = option(
        (), "destination nsqd TCP address (may be given multiple times)"
    )
    producer_opt: tuple[str, ...] = option(
        (),
        "name,value of go-nsq's Config for producers (may be given multiple times)",
        check=passthrough.check,
        read=passthrough.split,
    )


def main() -> int:
    """Run the console script and return its exit code."""
    return run_program(PROGRAM, Options, run)


def run(options: Options) -> None:
    """Republish messages until a signal arrives. Raises ValueError for wrong options, and ConsumerError."""
    check(options)
    settings, max_in_flight = options.consumer_settings(PROGRAM)
    topics = tuple(dict.fromkeys(options.topic))
    consumers = [options.consumer(topic, options.channel, settings, max_in_flight) for topic in topics]
    waker = Waker()
    route = make_route(options, topics, max_in_flight, waker)
    run_consumers(consumers, route, waker, touch_interval(settings))
    route.log_drops()


def check(options: Options) -> None:
    """Raise ValueError for options that are missing or wrong."""
    check_source(PROGRAM, options.topic, options.channel, options.nsqd_tcp_address, options.lookupd_http_address)
    if options.destination_topic and not is_valid_name(options.destination_topic):
        raise ValueError(f"--destination-topic is invalid: {options.destination_topic!r}")
    check_given(PROGRAM, "destination-nsqd-tcp-address", options.destination_nsqd_tcp_address)
    check_no_scheme("destination-nsqd-tcp-address", options.destination_nsqd_tcp_address)


def make_route(options: Options, topics: Sequence[str], max_in_flight: int, waker: Waker) -> Republishing:
    """Return the Route to all destinations. Raises ValueError for a bad address or bad settings."""
    addresses = tuple(dict.fromkeys(options.destination_nsqd_tcp_address))
    settings, _ = passthrough.settings(options.producer_opt, PROGRAM)
    for address in addresses:
        Producer(address, settings)  # raises ValueError now, not in a thread
    fields, value = options.require_json_field, options.require_json_value
    return Republishing(
        topics={topic: options.destination_topic or topic for topic in topics},
        choice=destinations(options.mode, addresses, random.random),
        workers={
            address: Workers(lambda address=address: Publisher(Producer(address, settings)), CONNECTIONS, waker.wake)  # type: ignore[misc]
            for address in addresses
        },
        status=Status(options.status_every, addresses),
        keep=JsonFilter(fields, value, options.whitelist_json_field)
        if fields or options.whitelist_json_field
        else None,
        most=max(1, max_in_flight // CONNECTIONS),
    )
