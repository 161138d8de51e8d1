"""Damage between a node's lives, on a simulated disk: nothing is lost silently, and below the stated mark only what was hit.

PENSTOCK_EFFORT and PENSTOCK_FIRST choose the seeds (tests/effort.py). A failure names its seed, which replays exactly.
"""

from typing import Any

import pytest

from nsqd.storage.log.quarantine import Quarantine
from shared.topic_config import Durability
from tests.effort import seeds
from tests.nsqd.storage.damage_run import DamageRun
from tests.nsqd.storage.sim_node import run_seeds

pytestmark = pytest.mark.long

SEEDS = seeds(10)
FOUND_WITHIN = 200  # seeds


@pytest.mark.parametrize("durability", list(Durability))
def test_nothing_is_lost_silently_and_below_the_mark_only_what_was_hit(durability: Durability) -> None:
    missing = reported = 0
    copies: set[str] = set()
    for run in run_seeds(lambda seed: DamageRun(seed, durability), SEEDS):
        missing, reported = missing + run.missing, reported + run.reported
        copies |= {name.rpartition(".")[2] for name, _ in Quarantine(run.disk.kill()).copies}
    assert missing > 0
    assert reported > 0
    assert copies == {"torn", "damaged"}


@pytest.mark.parametrize(("where", "wrong", "durability", "complaint"), [
    ("reader.LogRecords._highest_mark", lambda reader, place, at: 0, Durability.ALWAYS, "not served"),
    ("reader.LogRecords.torn", property(lambda reader: 0), Durability.OS, "silently lost"),
    ("writer.Writer.unstated", property(lambda writer: False), Durability.OS, "does not state its mark"),
    ("reader.resume", lambda data, at, seed, start=0: len(data), Durability.ALWAYS, "not served"),
], ids=["all that is wrong is a torn tail", "no report of a cut", "no mark", "too much is passed over"])  # fmt: skip
def test_each_planted_bug_is_found(
    where: str, wrong: Any, durability: Durability, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"nsqd.storage.log.{where}", wrong)

    with pytest.raises(AssertionError, match=complaint):
        list(run_seeds(lambda seed: DamageRun(seed, durability), range(FOUND_WITHIN)))
