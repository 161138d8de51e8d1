"""Damage between a node's lives, on a simulated disk: nothing is lost silently, and below the stated mark only what was hit.

PENSTOCK_EFFORT and PENSTOCK_FIRST say how many seeds are run, and with which it begins (tests/effort.py). A
failure names its seed, which replays exactly. Bugs that are planted here must be found within 200 seeds.
"""

from collections.abc import Iterable

import pytest

from nsqd.core.retention.policy import Durability
from nsqd.storage.log.quarantine import Quarantine
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.writer import Writer
from tests.effort import seeds
from tests.nsqd.storage.damage_run import DamageRun

pytestmark = pytest.mark.long

SEEDS = seeds(10)
FOUND_WITHIN = 200  # seeds


@pytest.mark.parametrize("durability", list(Durability))
def test_nothing_is_lost_silently_and_below_the_mark_only_what_was_hit(durability: Durability) -> None:
    missing = told = 0
    for seed in SEEDS:
        run = DamageRun(seed, durability)
        try:
            run.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, {durability.value}: {error}") from error
        missing, told = missing + run.missing, told + run.told
    assert missing > 0
    assert told > 0


def test_a_seed_replays_exactly() -> None:
    for seed in range(3):
        runs = [DamageRun(seed, Durability.OS) for _ in range(2)]
        for run in runs:
            run.run()
        first, second = ((run.disk.operations, run.published, run.missing, run.told) for run in runs)
        assert first == second


def assert_found(durability: Durability, complaints: Iterable[str]) -> None:
    for seed in range(FOUND_WITHIN):
        try:
            DamageRun(seed, durability).run()
        except AssertionError as error:
            found = str(error)
            break
    else:
        raise AssertionError("the bug was not found")
    assert any(complaint in found for complaint in complaints), found


def test_taking_all_that_is_wrong_for_a_torn_tail_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogRecords, "_highest_mark", lambda reader, place, at: 0)
    assert_found(Durability.ALWAYS, ["not served"])


def test_not_telling_what_is_cut_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogRecords, "torn", property(lambda reader: 0))
    assert_found(Durability.OS, ["silently lost"])


def test_not_stating_the_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "unstated", property(lambda writer: False))
    assert_found(Durability.OS, ["does not state its mark"])


def test_passing_over_more_than_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqd.storage.log.reader.resume", lambda data, at, seed, start=0: len(data))
    assert_found(Durability.ALWAYS, ["not served"])


def test_a_run_makes_copies() -> None:
    kept: list[str] = []
    for seed in range(20):
        run = DamageRun(seed, Durability.OS)
        run.run()
        kept += [name for name, _ in Quarantine(run.disk.kill()).copies]
    assert {name.rpartition(".")[2] for name in kept} == {"torn", "damaged"}
