"""The options of clients in a variable. Flags of addresses are checked in test_apps.py and test_forward_options.py."""

from apps.nsq_tail import Options
from shared.configuration import parse


def test_a_variable_has_options_of_clients_separated_by_spaces() -> None:
    environment = {"NSQ_TAIL_CONSUMER_OPT": "auth_secret,one,two  snappy", "NSQ_TAIL_TOPIC": "a, b"}
    options = parse(Options, "nsq_tail", [], environment)
    assert options.consumer_opt == ("auth_secret,one,two", "snappy")
    assert options.topic == ("a", "b")
