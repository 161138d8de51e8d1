"""Queues with any name that Disque allows, for clients of beanstalkd: lists are YAML, and commands take what they show."""

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.cluster.remote_jobs.job_owners import KEPT
from nsqd.core.limits import Limits
from nsqd.protocols.beanstalk.commands import MAX_LINE, shown
from tests.cases import each
from tests.effort import tries
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as Beanstalk
from tests.nsqd.protocols.disque.wire import Wire

ODD = [
    "@mail", "orders:eu", "a#b", "-", "-x", "--", "---", "~", "*x", "&x", "!x", "%x", "%20", "|", ">", "{a}", "[a]", "a,b", "?",
    ":", "`", '"', '""', '"a"', "'", "'a'", "\\", 'a"b\\', '"@mail"', "=", "<<", "a:b", "x" * 199 + "@", '"' * 200,
]  # fmt: skip
PLAIN = ["default", "a.b", "$x", "(x)", "+x", "/", ";", "123", "true", "null", "1.5", "0x1f", "."]
NAMES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=200).filter(
    lambda name: not name.startswith("#") and not name.endswith("#ephemeral")
)


def node_with(*names: str) -> Beanstalk:
    """A client of beanstalkd, of a node whose queues have these names."""
    node = Node(Limits(whole_job_ids=True))
    disque = Wire(node)
    for name in names:
        disque.add(name)
    return Beanstalk(node)


def texts(answer: bytes) -> object:
    """What YAML says of an answer, whose length is checked; each scalar as its text."""
    head, _, rest = answer.partition(b"\r\n")
    assert head == b"OK %d" % (len(rest) - 2)
    return yaml.load(rest[:-2], yaml.BaseLoader)


def works(wire: Beanstalk, name: str) -> None:
    """Every command that takes the name of a tube takes this one."""
    word = name.encode()
    assert texts(wire.ask(b"stats-tube %s\r\n" % word))["name"] == name  # type: ignore[index]
    assert wire.ask(b"use %s\r\nlist-tube-used\r\n" % word) == b"USING %s\r\n" % word * 2
    if name != "default":
        assert wire.ask(b"watch %s\r\n" % word) == b"WATCHING 2\r\n"
    watched = texts(wire.ask(b"list-tubes-watched\r\n"))
    assert set(watched) == {"default", name}  # type: ignore[call-overload]
    found, number, *_ = wire.ask(b"peek-ready\r\n").split()
    assert found == b"FOUND"
    assert texts(wire.ask(b"stats-job %s\r\n" % number))["tube"] == name  # type: ignore[index]
    assert wire.ask(b"pause-tube %s 0\r\n" % word) == b"PAUSED\r\n"
    assert texts(wire.ask(b"list-jobs %s ready 10\r\n" % word)) == [number.decode()]
    line = b"move-job %s %s\r\n" % (number, word)
    if len(line) <= MAX_LINE:
        assert wire.ask(line).startswith(b"MOVED ")
    assert wire.ask(b"clear-tube %s\r\n" % word) == b"CLEARED 1\r\n"
    if name != "default":
        assert wire.ask(b"ignore %s\r\n" % word) == b"WATCHING 1\r\n"


@each("name", ODD + PLAIN)
def test_lists_name_it_and_commands_take_it(name: str) -> None:
    wire = node_with(name)
    answer = wire.ask(b"list-tubes\r\n")
    assert name in texts(answer)  # type: ignore[operator]
    if name in PLAIN:
        assert b"\n- %s\n" % name.encode() in answer, "names that beanstalkd allows are shown as it shows them"
    else:
        assert name in yaml.safe_load(answer.partition(b"\r\n")[2][:-2]), "it is a string for every reader of YAML"
    works(wire, name)


@settings(max_examples=tries(100, in_short=30))
@given(NAMES)
def test_any_name_of_a_queue(name: str) -> None:
    wire = node_with(name, "other", "@other")
    assert texts(wire.ask(b"list-tubes\r\n")) == list(dict.fromkeys([name, "other", "@other", "default"]))
    works(wire, name)


@settings(max_examples=tries(100, in_short=30))
@given(st.lists(NAMES, min_size=2, max_size=5, unique=True))
def test_clients_that_read_no_yaml_send_names_as_lists_show_them(names: list[str]) -> None:
    wire = node_with(*names)
    lines = wire.ask(b"list-tubes\r\n").splitlines()[2:-1]
    assert [line[:2] for line in lines] == [b"- "] * len(lines)
    for name in names:
        word = shown(name).encode()
        if len(word) <= 200 and (word.decode() == name or word.decode() not in names):
            assert texts(wire.ask(b"stats-tube %s\r\n" % word))["name"] == name  # type: ignore[index]


def test_a_name_that_no_tube_has_is_as_bad_as_ever_and_a_tube_of_the_node_itself_is_in_no_list() -> None:
    wire = node_with("other")
    wire.node.broker.tubes.made(KEPT)
    for name in (*ODD, KEPT, "#x", "a b", "\x7f", "\u00e9", "x" * 201):
        for line in (
            "stats-tube %s", "use %s", "watch %s", "ignore %s", "pause-tube %s 0", "clear-tube %s",
            "list-jobs %s ready 9",
        ):  # fmt: skip
            assert wire.ask((line % name).encode() + b"\r\n") == b"BAD_FORMAT\r\n", name
    assert texts(wire.ask(b"list-tubes\r\n")) == ["other", "default"]
    assert texts(wire.ask(b"stats\r\n"))["current-tubes"] == "2"  # type: ignore[index]
    wire.node.broker.check()
