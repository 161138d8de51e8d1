"""Read the options whose values are words with rules of their own: AUTH, clusters, attempts, the prefix of statistics."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.protocol.names import is_valid_name
from penstock.protocol.nsq import MAX_ATTEMPTS
from shared.checks import complaints, no_host_port
from shared.process.listen import ListenError, is_loopback, parse_address

MOST_CLUSTER_NAME = 100  # bytes

TOPOLOGY_AWARE = "topology-aware-consumption"
EXPERIMENTS = (TOPOLOGY_AWARE,)


def odd_auth_address(address: str) -> str:
    """Return a warning about the address of an authorization server, or "". It is `<addr>:<port>` or a URL.

    This is an option check.
    """
    if "://" not in address:
        if "/" in address:
            return "expected <addr>:<port> or a full url"
        return no_host_port(address)
    from urllib.parse import urlsplit

    try:
        url = urlsplit(address)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # half an IPv6 address, or a port beyond the highest; the exception's text might show a secret
        usable = False
    return "" if usable else "expected http:// or https://, a host, and a port of 1 to 65535 if any"


def statsd_prefix(template: str, host: str, http_port: int) -> str:
    """Return the beginning of the names of all statistics: `%s` is the node, and a dot ends it; "" for an empty template.

    The original keeps this as the value of its option, and so answers it to /config/statsd_prefix (nsqd.New).
    """
    joined = f"[{host}]:{http_port}" if ":" in host else f"{host}:{http_port}"
    prefix = template.replace("%s", joined.replace(".", "_").replace(":", "_"))
    return prefix if not prefix or prefix.endswith(".") else f"{prefix}."


def cluster_problems(
    address: str, name: str, secret_file: str, peers: Iterable[str], node_id: int, tls: tuple[str, str, str]
) -> list[str]:
    """Return the errors in the options of a cluster together. `tls`: the files of the certificate, key and authority."""
    if not address:
        wrong = ["--cluster-peer needs --cluster-address"] if peers else []
        return [*wrong, "the flags --cluster-tls-* need --cluster-address"] if any(tls) else wrong
    wrong = []
    if any(tls) and not all(tls):
        wrong.append("--cluster-tls-cert, --cluster-tls-key and --cluster-tls-ca must be given together")
    elif not any(tls):
        wrong += complaints("cluster-address", filter(is_beyond_loopback, [address]), _needs_tls)
    if node_id < 0:
        wrong.append("--cluster-address needs --node-id: each node of the cluster has a number of its own, 0 to 1023")
    if not secret_file:
        wrong.append("--cluster-address needs --cluster-secret-file: a file with the secret that all nodes share")
    if not name or len(name.encode()) > MOST_CLUSTER_NAME:
        wrong.append(f"--cluster-name must have 1 to {MOST_CLUSTER_NAME} bytes")
    return wrong


def lookupd_tls_problems(root_ca: str, cert: str, key: str) -> list[str]:
    """Return the errors in the files for TLS to nsqlookupd together."""
    if bool(cert) != bool(key):
        return ["--lookupd-tls-cert and --lookupd-tls-key must be given together"]
    return ["--lookupd-tls-cert needs --lookupd-tls-root-ca-file"] if cert and not root_ca else []


def no_address_of_nodes(address: str) -> str:
    """Return the reason why other nodes cannot reach an address, or "". This is an option check."""
    try:
        is_path = bool(parse_address(address).path)
    except ListenError as error:
        return error.why
    return "a unix socket cannot be reached by other nodes: expected <addr>:<port>" if is_path else ""


def is_beyond_loopback(address: str) -> bool:
    """Return True if other machines can reach an address. Of "" and unusable addresses, which other checks refuse: False."""
    try:
        return bool(address) and not is_loopback(address)
    except ListenError:
        return False


def _needs_tls(_: str) -> str:
    needed = "-cluster-tls-cert, -cluster-tls-key and -cluster-tls-ca"
    return f"beyond loopback the nodes need TLS: give {needed} (penstock cluster certs makes them)"


def needs_auth_file(_: str) -> str:
    """Return the reason why an address is refused without an auth file."""
    return "anyone could connect: give --auth-file (penstock auth), or --require-auth=false"


def check_events(word: str) -> str:
    """Return the error in the value of statistics-events, or "". This is an option check."""
    try:
        read_events(word)
    except ValueError as error:
        return str(error)
    return ""


def read_events(word: str) -> float:
    """Return the share of messages, 0 to 1, whose events are published: off, full, or such a number. Raises ValueError."""
    try:
        share = {"off": 0.0, "full": 1.0}.get(word)
        share = float(word) if share is None else share
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("expected off, full, or a share of the messages such as 0.01")
    return share


def check_attempts(words: Iterable[str]) -> str:
    """Return the error in the words, or "": each is `<number>` or `<topic>=<number>`. This is an option check."""
    try:
        read_attempts(words)
    except ValueError as error:
        return str(error)
    return ""


def read_attempts(words: Iterable[str]) -> dict[str, int]:
    """Return the most attempts by topic, 0 for no limit; "" stands for the topics not named. A later word wins.

    Raises ValueError.
    """
    limits = {}
    for word in words:
        topic, _, number = word.rpartition("=")
        if ("=" in word and not is_valid_name(topic)) or not (number.isascii() and number.isdigit()):
            raise ValueError(f"expected <attempts> or <topic>=<attempts>, not {word!r}")
        if len(number) > 5 or int(number) > MAX_ATTEMPTS:
            raise ValueError(f"expected 0 to {MAX_ATTEMPTS} attempts")
        limits[topic] = int(number)
    return limits
