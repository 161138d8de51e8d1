"""The number of a cluster's node in its certificate: a URI among the alternative names, such as `penstock:node:7`."""

import re
from collections.abc import Iterable

MOST_NODES = 1024  # their numbers begin at 0
_PREFIX = "penstock:node:"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,3}")


def node_uri(number: int) -> str:
    """Return the URI that stands for a node in its certificate."""
    return f"{_PREFIX}{number}"


def certified_number(uris: Iterable[str]) -> int | None:
    """Return the number of the node that a certificate with these URIs belongs to, or None unless it is exactly one node's."""
    names = [uri for uri in uris if uri.lower().startswith(_PREFIX)]
    number = names[0].removeprefix(_PREFIX) if len(names) == 1 else ""
    return int(number) if _NUMBER.fullmatch(number) and int(number) < MOST_NODES else None


def names_problem(number: int, uris: Iterable[str]) -> str:
    """Return an error if a certificate with these URIs is not that of node `number`, or ""."""
    certified = certified_number(uris)
    if certified == number:
        return ""
    problem = "names no node" if certified is None else f"is that of node {certified}"
    return f"it {problem}, and -node-id is {number}: it needs the one URI {node_uri(number)}"
