"""nsq_to_http: send each message of a topic as an HTTP request, GET or POST.

Invariant: a message is finished when an endpoint has taken it (POST: a status of 200 to 299; GET: exactly 200), or when
-sample leaves it out; otherwise it is requeued.

Redirects are followed, as in the original: ten requests for a message at most, a GET to wherever it is sent, a POST with
its body on 307 and 308, and as a GET on 303, by which the endpoint says that it has taken the message.

Deliberate differences from the original:
* a POST that is answered 301 or 302 has failed (the original continues with a GET without the message, and finishes it);
* an unknown -mode is an error (the original sends each message to every address), and so is an address that is no http
  or https URL, and a header that HTTP does not allow;
* a header Host, Content-Length, Transfer-Encoding or Trailer is an error (the original ignores it);
* a source that cannot be reached at the start is retried, like one that goes away later;
* a message is not finished after five failed attempts, unless -consumer-opt=max_attempts,5 says so;
* of a long or slow answer the rest is not read, once the status is known: the connection is closed;
* after a signal, requests in work get 8 s, in the original 30 s; other messages are requeued at once.

See docs/reference/tools.md#nsq_to_http.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from apps.destinations import check_mode, destinations
from apps.forwarding import run_consumers, touch_interval
from apps.http_sending import Form, Sender, SendError, parse_url
from apps.passthrough import ConsumerOptions
from apps.requesting import Item, Requester, Requesting, Result, fill
from apps.timings import Status, check_every
from apps.tool import check_source, run_program
from apps.workers import Waker, Workers
from shared.options import option
from shared.values import SECOND, Duration
from shared.version import NSQ_VERSION

PROGRAM = "nsq_to_http"
CONTENT_TYPE = "application/octet-stream"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a header's name
_NOT_CHOSEN = ("host", "content-length", "transfer-encoding", "trailer")
_CONNECT_TIMEOUT, _REQUEST_TIMEOUT = Duration(2 * SECOND), Duration(20 * SECOND)


def _check_timeout(timeout: Duration) -> str:
    return "must not be negative" if timeout < 0 else ""


@dataclass(frozen=True, slots=True)
class Options(ConsumerOptions):
    """The options of nsq_to_http, by their flags."""

    topic: str = option("", "NSQ topic")
    channel: str = option("nsq_to_http", "NSQ channel")
    n: int = option(100, "number of concurrent requests")
    mode: str = option("hostpool", "choice of the address: round-robin, hostpool or epsilon-greedy", check=check_mode)
    sample: float = option(1.0, "share of the messages to send, from 0 to 1; the others are finished")
    http_client_connect_timeout: Duration = option(
        _CONNECT_TIMEOUT, "timeout for HTTP connect (0: none)", check=_check_timeout
    )
    http_client_request_timeout: Duration = option(
        _REQUEST_TIMEOUT, "timeout for an HTTP request with its redirects (0: none)", check=_check_timeout
    )
    status_every: int = option(
        250, "number of requests between two lines of status for each address (0: none)", check=check_every
    )
    content_type: str = option(CONTENT_TYPE, "the Content-Type of POST requests")
    get: tuple[str, ...] = option(
        (), "HTTP address to make a GET request to; `%s` is replaced by the message (may be given multiple times)"
    )
    post: tuple[str, ...] = option(
        (), "HTTP address to make a POST request to, with the message as its body (may be given multiple times)"
    )
    header: tuple[str, ...] = option((), "header of HTTP requests, Name: value (may be given multiple times)")


def main() -> int:
    """Run the console script and return its exit code."""
    return run_program(PROGRAM, Options, run)


def run(options: Options) -> None:
    """Send requests until a signal arrives. Raises ValueError for wrong options, and ConsumerError."""
    form = check(options)
    settings, max_in_flight = options.consumer_settings(PROGRAM)
    consumer = options.consumer(options.topic, options.channel, settings, max_in_flight)
    waker = Waker()
    route = make_route(options, form, max_in_flight, waker)
    run_consumers([consumer], route, waker, touch_interval(settings))


def check(options: Options) -> Form:
    """Return the form of all requests. Raises ValueError for options that are missing or wrong."""
    headers = parse_headers(options.header)
    topics = (options.topic,) if options.topic else ()
    if options.content_type != CONTENT_TYPE and topics and options.channel:  # in the original's order
        if not options.post:
            raise ValueError("--content-type only used with --post")
        if not options.content_type:
            raise ValueError("--content-type requires a value when used")
    check_source(PROGRAM, topics, options.channel, options.nsqd_tcp_address, options.lookupd_http_address)
    _check_addresses(options)
    if not 0 <= options.sample <= 1:
        raise ValueError("--sample must be between 0.0 and 1.0")
    if options.n < 1:
        raise ValueError("-n must be at least 1")
    first = {"user-agent": f"{PROGRAM} v{NSQ_VERSION}", "accept-encoding": "gzip"}
    if options.post:
        first["content-type"] = parse_headers([f"content-type:{options.content_type}"])["content-type"]
    return Form(
        "POST" if options.post else "GET",
        first | headers,
        options.http_client_connect_timeout / SECOND,
        options.http_client_request_timeout / SECOND,
    )


def _check_addresses(options: Options) -> None:
    if not options.get and not options.post:
        raise ValueError("--get or --post required")
    if options.get and options.post:
        raise ValueError("use --get or --post not both")
    for address in options.get:
        if address.count("%s") != 1:
            raise ValueError("invalid GET address - must be a printf string")
    for address in (*options.get, *options.post):
        try:
            parse_url(fill(address, b"") if options.get else address)
        except ValueError as error:
            raise ValueError(f"invalid address {_shown(address)}: {error}") from None


def parse_headers(lines: Sequence[str]) -> dict[str, str]:
    """Return the headers of `Name: value` lines, by names in lower case; the last one counts. Raises ValueError."""
    headers = {}
    for line in lines:
        name, _, value = (part.strip() for part in line.partition(":"))
        if not name or not value:
            raise ValueError("--header value format should be 'key: value'")
        if not _TOKEN.fullmatch(name) or not value.isprintable():
            raise ValueError(f"--header {name!r} is not a header that HTTP allows")
        if name.lower() in _NOT_CHOSEN:
            raise ValueError(f"--header {name} cannot be chosen")
        headers[name.lower()] = value
    return headers


def make_route(options: Options, form: Form, max_in_flight: int, waker: Waker) -> Requesting:
    """Return the Route to all addresses."""
    names = {address: _shown(address) for address in options.get or options.post}

    def make() -> Requester:
        return Requester(Sender(form), SendError, form.method == "GET")

    workers: Workers[Item, Result] = Workers(make, min(options.n, max_in_flight), waker.wake)
    sample = options.sample
    return Requesting(
        destinations(options.mode, tuple(names), random.random),
        workers,
        Status(options.status_every, names),
        names,
        lambda: sample >= 1 or random.random() < sample,
    )


def _shown(address: str) -> str:
    """Return the address for the log, without a password."""
    try:
        netloc = urlsplit(address).netloc
    except ValueError:
        return address
    _, at, host = netloc.rpartition("@")
    return address.replace(netloc, host, 1) if at else address
