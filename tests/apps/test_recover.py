"""The copy of a lost log that `penstock recover` takes, given the answers of the nodes."""

from typing import Any

import pytest

from apps.recover import choose, find_copies
from nsqd.cluster.replication.offers import find_offers
from shared.terminal.commands import CommandError
from tests.cases import each

LOG = bytes(16)


def replica(written: int, **changes: Any) -> dict[str, Any]:
    """Return the entry of /cluster about a replica of node 7."""
    epochs = [("00000001" + "00" * 10, 0)]
    complete = {"node": 7, "log_id": LOG.hex(), "complete": True, "written": written, "epochs": epochs, "failure": ""}
    return complete | {"opening": False} | changes


def nodes(*replicas: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """Ask nodes that have one replica each."""
    answers = {f"n{number}:1": {"replicas": [one], "nodes": []} for number, one in enumerate(replicas)}
    return find_copies(list(answers), 7, answers.__getitem__)  # type: ignore[return-value]


def test_the_longest_copy_is_taken() -> None:
    assert choose(*nodes(replica(5), replica(9)), 7, False).end == 9


@each("why", [{"opening": True}, {"failure": "Input/output error"}])
def test_a_copy_that_cannot_be_read_yet_may_be_longer_and_is_asked_for_again(why: dict[str, Any]) -> None:
    copies, silent = nodes(replica(5), replica(0, complete=False, epochs=[], **why))
    assert silent == ["n1:1"]
    with pytest.raises(CommandError, match="n1:1 may have a longer copy"):
        choose(copies, silent, 7, False)
    shown: dict[str, Any] = {"led": [], "closed": []}
    assert find_offers("n:1", shown | {"replicas": [replica(0, **why)]}, LOG) is None
    offers = find_offers("n:1", shown | {"replicas": [replica(5)]}, LOG)
    assert [offer.end for offer in offers or ()] == [5]


def test_of_several_logs_that_of_the_last_run_is_taken() -> None:
    """A node that was started on an empty directory counts its epochs from the start."""
    later = (b"\1" * 16).hex()
    members = [{"node": 7, "log_id": later, "incarnation": 9, "http_address": "", "standing": "member"}]
    old = replica(900) | {"epochs": [("00000028" + "00" * 10, 0)]}
    answer = {"replicas": [old, replica(5) | {"log_id": later}], "nodes": members}
    copies, silent = find_copies(["n:1"], 7, lambda address: answer)
    assert silent == []
    assert choose(copies, silent, 7, False).log_id == later
