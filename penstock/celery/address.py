"""The URL of the transport and its options. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.sansio.address import check_address

JOBS_PORT, NSQD_PORT = 11300, 4150
NUMBERS = ("ttr", "timeout", "retry", "connect_timeout")
OPTIONS = ("nsqd", *NUMBERS)


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """The servers of the jobs and the broadcasts, and how they are put."""

    jobs: str  # host:port of beanstalkd's protocol
    nsqd: str  # host:port of nsqd, or "": no broadcasts
    prefix: str  # of each name of a tube and topic
    ttr_s: int = 60  # time to run of a job; held jobs are touched, so it bounds only how late a lost worker is noticed
    timeout_s: float = 10.0
    retry_s: float = 30.0  # how long a lost server is waited for before kombu gets an error
    connect_timeout_s: float = 5.0


def read_url(url: str, options: Mapping[str, object]) -> BrokerUrl:
    """Read penstock://HOST[:PORT][/VHOST][?nsqd=HOST:PORT&ttr=60], and kombu's transport_options of the same names.

    Without `nsqd`, broadcasts use port 4150 of the same host; an empty one means that there are none. VHOST is a prefix of
    all names. An unknown option of the URL raises ValueError, as every bad value does; transport_options may hold others,
    which are kombu's.
    """
    parts = urlsplit(url if "://" in url else f"penstock://{url}")
    host, port = parts.hostname or "127.0.0.1", JOBS_PORT if parts.port is None else parts.port
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in sorted(query.keys() - set(OPTIONS)):
        raise ValueError(f"unknown option in the broker URL: {name[:100]!r}; known are {', '.join(OPTIONS)}")
    given = {**query, **{key: str(value) for key, value in options.items()}}
    bracketed = f"[{host}]" if ":" in host else host
    nsqd = given.get("nsqd", f"{bracketed}:{NSQD_PORT}")
    vhost = unquote(parts.path).strip("/")
    numbers = {name: _positive(name, given[name]) for name in NUMBERS if name in given}
    return BrokerUrl(
        check_address(f"{bracketed}:{port}"),
        check_address(nsqd) if nsqd else "",
        f"{vhost}." if vhost else "",
        int(numbers.get("ttr", 60)),
        numbers.get("timeout", 10.0),
        numbers.get("retry", 30.0),
        numbers.get("connect_timeout", 5.0),
    )


def _positive(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number of seconds: {text[:100]!r}") from None
    if not 1 <= number <= 86_400:
        raise ValueError(f"{name} must be 1 to 86400 seconds: {text}")
    return number
