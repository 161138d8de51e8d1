"""Every declared argument of every route: wrong values are refused before the node is touched."""

import inspect
import re

import pytest

from shared.http.argument import REQUIRED, Argument
from shared.http.errors import HttpError
from shared.http.route import Route
from tests.cases import each
from tests.declared_routes import LOOKUPD, NODE, NSQD, REGISTRY
from tests.nsqd.http.asking import handled

DECLARED = [*NSQD.values(), *LOOKUPD.values()]
GOOD = dict.fromkeys(("limit", "count", "min", "hold_bytes", "seconds", "sequence", "node", "offset", "to"), "1")
GOOD |= {
    "topic": "t",
    "channel": "c",
    "tube": "t",
    "name": "n",
    "batch": "b",
    "state": "ready",
    "id": "1" * 16,
    "by": "ann",
    "log": "ab",
}
GOOD |= {"client": "10.0.0.1:5", "from": "earliest", "time": "-1h", "hold": "1h", "queue": "all", "after": "t/n"}
GOOD |= {"columns": "depth"}
MANY = 5000
BAD = {  # by what the reference says that values must be; the groups are bounds
    r"(\d+) to (\d+)": lambda least, most: (
        f"{int(least) - 1}", f"{int(most) + 1}", "", "x", "1.5", "+1", "1 ", "\u0661", "9" * MANY,
    ),
    r"up to (\d+) characters": lambda most: ("x" * (int(most) + 1),),
    r"up to (\d+) printable characters": lambda most: ("\u00e9" * (int(most) + 1), "a\nb"),
    r"up to (\d+) printable bytes": lambda most: ("\u00e9" * (int(most) // 2 + 1), "a\nb"),
    r"1 to (\d+) printable ASCII characters": lambda most: ("", "two words", "\u00e4", "x" * (int(most) + 1), "p\n"),
    r"a name": lambda: ("", ".", "no name!", "x" * 65),
    r"up to (\d+) (ids|offsets), separated by commas": lambda most, _: (
        "", "1,,2", "\u00e9" * 16, "-1", "9" * 40, ",".join(f"{one:016}" for one in range(int(most) + 1)),
    ),
    r"16 digits": lambda: ("", "short", "\u00e9" * 16, "1" * 17),
    r"a place": lambda: (
        "", "soon", "-1", "-1parsec", "1.5", "1" * 20, "\u0661", "2026-13-01T00:00:00Z", "2026-11-21T10:00:00",
    ),
    r"a duration": lambda: ("", "5", "long", "-1h", "300y"),
    r"a duration up to (\S+)": lambda most: ("", "5", "long", "-1ns", "300y", f"{most}1ns"),
    r"a duration such as \S+ or \S+": lambda: ("", "5", "long", "-1s", "0s", "300y", "1s" * MANY),
    r"a time as in RFC 3339": lambda: ("", "soon", "1", "2026-13-01T00:00:00Z", "2026-11-21T10:00:00", "0001-01-01T00:00Z"),
    r"the receipt of a message": lambda: ("", "1" * 39, "1" * 41, "g" * 40, "\u0661" * 40),
    r"an id in hex": lambda: ("x", "0", "\u0661\u0661"),
    r"names of columns": lambda: ("nope", "depth,", ",", "drain"),
    r"TOPIC/NAME or TOPIC/NAME/LOG": lambda: ("", "t"),
    r"up to \d+ times": lambda: (),
    r"the name of a topic .*, or default": lambda: ("", "no name!", "t#ephemeral", "x" * MANY),
    r".*, or default": lambda: ("", "nope", "-1", "DEFAULT", "1" * 20, "9" * MANY),
    r"(?:[a-z_, ]+ or )?[a-z_]+": lambda: ("", "nope", "READY", "ready "),
    "": lambda: (),
}  # fmt: skip


def bad_values(argument: Argument) -> tuple[str, ...]:
    """Return values that an argument does not take."""
    for pattern, values in BAD.items():
        if found := re.fullmatch(pattern, argument.expected):
            return values(*found.groups())
    raise AssertionError(f"there are no bad values for {argument.expected!r}")


def refusal(route: Route, arguments: dict[str, str]) -> str:
    with pytest.raises(HttpError) as refused:
        handled(route.handler, **arguments)
    assert refused.value.status == 400
    return refused.value.text


@each("route", DECLARED)
def test_an_argument_that_is_missing_or_bad_is_refused_before_anything_is_done(route: Route) -> None:
    NODE.reset_mock()
    REGISTRY.reset_mock()
    needed = {one.name: GOOD[one.name] for one in route.arguments if one.default is REQUIRED}
    for argument in route.arguments:
        name, others = argument.name.upper(), {key: value for key, value in needed.items() if key != argument.name}
        if argument.name in needed:
            assert refusal(route, others) == f"MISSING_ARG_{name}"
        for value in bad_values(argument):
            assert refusal(route, others | {argument.name: value}) == (argument.invalid or f"INVALID_ARG_{name}"), value
    assert NODE.mock_calls == REGISTRY.mock_calls == []


@each("route", [route for route in DECLARED if not route.parses_itself])
def test_handlers_take_what_is_declared(route: Route) -> None:
    _, *parameters = inspect.signature(route.handler).parameters.values()
    named = {one.name: one.default for one in parameters if one.kind is not one.VAR_KEYWORD}
    declared = {one.keyword for one in route.arguments}
    assert len(declared) == len(route.arguments)
    assert {name for name, default in named.items() if default is inspect.Parameter.empty} <= declared
    assert declared <= set(named) or len(named) < len(parameters)
