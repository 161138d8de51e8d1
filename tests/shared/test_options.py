"""Options: Go's flag syntax, the environment, and the help, from one declaration."""

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.options import NsqdOptions
from shared.configuration import parse
from shared.environment import read_environment
from shared.flags import HelpRequested, read_flags, usage
from shared.options import OptionError, option, specs
from shared.values import MILLISECOND, SECOND, Duration, format_duration, parse_duration, parse_int, parse_text
from tests.cases import each


@dataclass(frozen=True, slots=True)
class Options:
    verbose: bool = option(False, "say more")
    topic: tuple[str, ...] = option((), "topics", flag="topic-name", key="topics")
    max_in_flight: int = option(200, "how many", check=lambda n: "expected 1 or more" if n < 1 else "")
    sample: float = option(1.0, "a part")
    name: str = option("x", "a name")
    timeout: Duration = option(Duration(60 * SECOND), "how long")
    parts: tuple[float, ...] = option((), "some parts")
    mode: str = option(
        "off", "on, off or auto", read=lambda text: {"true": "on", "auto": "auto"}[text], bool_style=True
    )
    derived: int = 5  # no option


def read(*argv: str, **environ: str) -> Options:
    return parse(Options, "prog", argv, environ)


@each("argv", [["-name", "y"], ["--name", "y"], ["-name=y"], ["--name=y"], ["-name", "z", "-name=y"]])
def test_the_forms_of_a_flag(argv: list[str]) -> None:
    assert read(*argv).name == "y"


def test_bools_lists_and_values() -> None:
    assert read() == Options()
    assert read("-verbose").verbose
    assert read("-verbose=T").verbose
    assert not read("-verbose=0").verbose
    assert read("-verbose", "false", "-name", "y") == Options(verbose=True)  # `false` is no flag: parsing stops
    assert read("-name", "-verbose").name == "-verbose"
    assert (read("-name=").name, read("-name=a=b").name) == ("", "a=b")
    assert read("-topic-name", "a,b", "-topic-name=c").topic == ("a,b", "c")
    assert read(PROG_TOPIC_NAME=" a , ,b").topic == ("a", "b")
    assert read("-parts", "0.5,0.9", "-parts=1").parts == (1.0, 0.9, 0.5)
    assert read(PROG_PARTS="0.5, 0.9").parts == (0.5, 0.9)
    assert (read().mode, read("-mode").mode, read("-mode=auto").mode) == ("off", "on", "auto")
    assert read("-mode", "auto", "-name", "y") == Options(mode="on")  # `auto` is no flag: parsing stops


@each("argv, warnings", [
    (["-verbose", "false", "-name", "y"], ["arguments from 'false' on are ignored"]),
    (["word", "-name"], ["arguments from 'word' on are ignored"]), (["-"], ["arguments from '-' on are ignored"]),
    ([""], ["arguments from '' on are ignored"]), (["--", "-name", "y"], ["arguments from '-name' on are ignored"]),
    (["u:s3cret@host:1"], ["arguments from '***@host:1' on are ignored"]),
    (["x" * 5000], [f"arguments from '{'x' * 100}' on are ignored"]), (["-name", "word", "--"], []), ([], []),
])  # fmt: skip
def test_what_is_ignored_is_said(argv: list[str], warnings: list[str]) -> None:
    found = read_flags(Options, "prog", argv)
    assert (list(found.warnings), list(found.errors)) == (warnings, [])


def test_wrong_variables() -> None:
    with pytest.raises(OptionError, match="environment variable PROG_SAMPLE"):
        read(PROG_SAMPLE="x")
    assert environment_warnings(f"PROG_{'x' * 9000}") == [f"unknown environment variable PROG_{'x' * 95}"]
    with pytest.raises(OptionError, match=r'invalid value "0" for flag -statsd-interval: expected 1ms or more'):
        parse(NsqdOptions, "nsqd", ["-statsd-interval=0"], {})


@each("argv, message", [
    (["-nope"], "flag provided but not defined: -nope (prog -help lists the flags)"),
    (["-name"], "flag needs an argument: -name"), (["---name"], "bad flag syntax: ---name"),
    (["-=x"], "bad flag syntax: -=x"),
    (["-verbose=yes"], 'invalid value "yes" for flag -verbose: expected true or false'),
    (["-max-in-flight", "x"], 'invalid value "x" for flag -max-in-flight: expected an integer'),
    (["-max-in-flight", "0"], 'invalid value "0" for flag -max-in-flight: expected 1 or more'),
    (["-sample", "x"], 'invalid value "x" for flag -sample: expected a number'),
    (["-max-in-flight", "9223372036854775808"], "value out of range"),
    (["-timeout", "5"], 'invalid value "5" for flag -timeout: expected a duration such as "250ms", "1m30s" or "1h"'),
    (["-parts", "0.5,"], 'invalid value "0.5," for flag -parts: expected a number'),
    (["-derived", "1"], "flag provided but not defined: -derived"),
])  # fmt: skip
def test_errors_are_one_clear_line(argv: list[str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        read(*argv)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def environment_warnings(*names: str) -> list[str]:
    found = read_environment(specs(Options, "prog"), "prog", dict.fromkeys(names, "s3cret"))
    assert not found.errors
    return list(found.warnings)


@each("name, hint", [
    ("PROG_MAX_IN_FLIHGT", ": did you mean PROG_MAX_IN_FLIGHT?"),
    ("PROG_MAX-IN-FLIGHT", ": did you mean PROG_MAX_IN_FLIGHT?"),
    ("PROG_TOPICS", ": did you mean PROG_TOPIC_NAME?"),  # the file's key
    ("PROG_OPTS_OF_SOMEBODY", ""), ("PROG_", ""), ("PROG_SUPPORT", ""), ("PROG_PORTS", ": did you mean PROG_PARTS?"),
    ("PROG_HTTP_PORT", ""),  # no variable describes such a service
])  # fmt: skip
def test_a_variable_that_is_no_option_is_a_warning_without_its_value(name: str, hint: str) -> None:
    assert environment_warnings(name) == [f"unknown environment variable {name}{hint}"]


def test_variables_of_other_programs_are_ignored() -> None:
    own = ["PROG_VERSION_OF_IT"]
    kubernetes = [
        "PROG_SERVICE_HOST", "PROG_SERVICE_PORT", "PROG_SERVICE_PORT_TCP_CLIENTS", "PROG_PORT", "PROG_PORT_4150_TCP",
        "PROG_PORT_4150_TCP_PROTO", "PROG_PORT_4150_TCP_PORT", "PROG_PORT_4150_TCP_ADDR", "PROG_PORT_53_UDP",
    ]  # fmt: skip
    another_service = ["PROG_HTTP_SERVICE_HOST", "PROG_HTTP_SERVICE_PORT", "PROG_HTTP_PORT", "PROG_HTTP_PORT_4151_TCP"]
    others = ["PROGRAM_X", "PROG", "prog_max_in_flihgt", "OTHER_SERVICE_HOST", "PATH"]
    found = environment_warnings(*own, *kubernetes, *another_service, *others)
    assert found == ["unknown environment variable PROG_VERSION_OF_IT"]


@each("word", ["-h", "--help", "-help"])
def test_help(word: str) -> None:
    with pytest.raises(HelpRequested) as raised:
        read(word)
    text = str(raised.value)
    assert text == usage(Options, "prog")
    assert "-timeout duration\n    \thow long (default 1m0s) [$PROG_TIMEOUT]" in text
    assert '-name string\n    \ta name (default "x") [$PROG_NAME]' in text
    assert "-verbose\n" in text
    assert "-mode\n" in text
    assert "-parts value\n" in text
    assert "derived" not in text


@each("text, ns", [
    ("0", 0), ("250ms", 250 * MILLISECOND), ("1m30s", 90 * SECOND), ("1h", 3600 * SECOND), ("1.5s", 1500 * MILLISECOND),
    (".5s", 500 * MILLISECOND), ("-2s", -2 * SECOND), ("+2s", 2 * SECOND), ("3us", 3000), ("3µs", 3000), ("7ns", 7),
    ("1.9ns", 1), ("2562047h47m16.854775807s", 2**63 - 1),
])  # fmt: skip
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@each("text", ["", "5", "s", "1s2", "1 s", "1x", "--1s", "1e3s", "-", "300000000h", "9" * 5000 + "s", "١s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@each("text", ["9" * 1_000_000, "9." + "9" * 1_000_000 + "x"])
def test_a_long_text_that_is_no_duration_takes_time_in_proportion(text: str) -> None:
    """In quadratic time this would be an hour."""
    with pytest.raises(ValueError):
        parse_duration(text)


@each("ns, text", [
    (0, "0s"), (1, "1ns"), (1500, "1.5µs"), (250 * MILLISECOND, "250ms"), (1500 * MILLISECOND, "1.5s"),
    (90 * SECOND, "1m30s"), (3600 * SECOND, "1h0m0s"), (-SECOND, "-1s"),
])  # fmt: skip
def test_durations_are_printed_as_go_prints_them(ns: int, text: str) -> None:
    assert format_duration(ns) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_printed_duration_reads_back(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@each("text, value", [("10", 10), ("-3", -3), ("0x1F", 31), ("0o17", 15), ("017", 15), ("0b11", 3), ("1_000", 1000)])
def test_integers_are_gos(text: str, value: int) -> None:
    assert parse_int(text) == value


@given(st.sampled_from([bool, int, float, Duration, str, tuple[str, ...], tuple[float, ...]]), st.text(max_size=12))
def test_no_text_is_a_bug(kind: object, text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_text(kind, text)
