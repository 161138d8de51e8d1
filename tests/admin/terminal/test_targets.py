"""The targets of commands: channels, and queues, whose terms differ."""

import argparse

import pytest

from admin.terminal.targets import STATES, add_target, state_of, target_of
from tests.cases import each


def parsed(*arguments: str, **options: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_target(parser)
    given = {"offset": None, "id": None, "state": None, "count": 1, **options}
    return argparse.Namespace(**vars(parser.parse_args(arguments)), **given)


def test_the_states_of_all_protocols() -> None:
    terms = {"queued": "ready", "active": "in_flight", "reserved": "in_flight", "delayed": "deferred"}
    for term, state in terms.items():
        assert state_of(term) == state_of(state) == state
    with pytest.raises(argparse.ArgumentTypeError, match="expected ready, in_flight"):
        state_of("gone")


@each("flag", ["--queue", "--tube"])
def test_a_queue(flag: str) -> None:
    target = target_of(parsed(flag, "mail"))
    assert [target.listing(state)["state"] for state in STATES] == ["ready", "reserved", "delayed", "buried"]
    assert (target.path, target.listed) == ("/tube/jobs", "jobs")
    path, done, query = target.action(parsed(flag, "mail", action="finish", id="D-1,2"))
    assert (path, done, query) == ("/tube/jobs/delete", "deleted", {"tube": "mail", "id": "D-1,2"})
    path, done, query = target.action(parsed(flag, "mail", action="requeue", state="in_flight", count=3))
    assert (path, done, query["state"], query["count"]) == ("/tube/jobs/release", "released", "reserved", 3)
