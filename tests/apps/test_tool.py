"""The checks of the address flags, and the options of clients in a variable."""

import pytest

from apps.nsq_tail import Options
from apps.tool import check_given, check_tcp_source
from shared.configuration import parse


@pytest.mark.parametrize(("nsqds", "lookupds", "reason"), [
    ((), (), "--nsqd-tcp-address or --lookupd-http-address required (tool -help lists the flags)"),
    (("h:1",), ("h:2",), "use --nsqd-tcp-address or --lookupd-http-address not both"),
    (("h:1", "tcp://h:1"), (), "--nsqd-tcp-address error - address should not contain scheme"),
])  # fmt: skip
def test_a_source_that_cannot_be_meant_is_refused(
    nsqds: tuple[str, ...], lookupds: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ValueError) as raised:
        check_tcp_source("tool", nsqds, lookupds)
    assert str(raised.value) == reason


def test_good_addresses_pass_and_a_destination_is_required() -> None:
    check_tcp_source("tool", ("h:1", "/run/nsqd.sock"), ())
    check_tcp_source("tool", (), ("http://h:4161",))
    check_given("tool", "nsqd-tcp-address", ("h:1",))
    with pytest.raises(ValueError, match=r"--destination required \(tool -help lists the flags\)"):
        check_given("tool", "destination", ())


def test_a_variable_has_options_of_clients_separated_by_spaces() -> None:
    environment = {"NSQ_TAIL_CONSUMER_OPT": "auth_secret,one,two  snappy", "NSQ_TAIL_TOPIC": "a, b"}
    options = parse(Options, "nsq_tail", [], environment)
    assert options.consumer_opt == ("auth_secret,one,two", "snappy")
    assert options.topic == ("a", "b")
