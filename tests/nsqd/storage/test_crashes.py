"""Crashes of a node on a simulated disk, in thousands of lives: acknowledged messages survive, finished ones stay finished.

PENSTOCK_EFFORT and PENSTOCK_FIRST choose the seeds (tests/effort.py). A failure names its seed, which replays exactly.
"""

import pytest

from nsqd.storage.log import records
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.writer import SyncJob, Writer
from shared.topic_config import Durability
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.storage.crash_run import CrashRun
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import run_seeds

pytestmark = pytest.mark.long

SEEDS = seeds(10)
FOUND_WITHIN = 400  # seeds; most take fewer than ten


@pytest.mark.parametrize("durability", list(Durability))
@each("seed", SEEDS)
def test_what_was_promised_survives(durability: Durability, seed: int) -> None:
    CrashRun(seed, durability).run()


def test_a_seed_replays_exactly() -> None:
    for seed in range(3):
        runs = [CrashRun(seed, Durability.ALWAYS) for _ in range(2)]
        for run in runs:
            run.run()
        first, second = ((run.disk.operations, run.written, run.clock.wall, run.noted) for run in runs)
        assert first == second


SYNC, BEGIN = Writer.sync_job, Writer._begin_segment


def sync_the_newest_only(writer: Writer) -> SyncJob | None:
    job = SYNC(writer)
    if job is not None:
        for file in job.files[:-1]:
            file.sync = lambda: None
    return job


def begin_segment(writer: Writer) -> None:
    BEGIN(writer)
    writer._new = not writer._ahead


BUGS = {
    "acknowledging before the sync": (LogStore, "durable", property(lambda store: store._writer.written), Durability.ALWAYS),
    "syncing only the newest segment": (Writer, "sync_job", sync_the_newest_only, Durability.INTERVAL),
    "believing what a killed process did not sync": (LogRecords, "_sync", lambda reader: None, Durability.OS),
    "reusing a segment whose new name may be lost": (Writer, "_begin_segment", begin_segment, Durability.ALWAYS),
    "believing a record of the segment that a file was before": (
        records, "seed_of", lambda log_id, base, generation, epoch: 7, Durability.ALWAYS,
    ),
    "forgetting to sync the directory": (SimDisk, "sync_directory", lambda disk: None, Durability.ALWAYS),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_each_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong, durability = BUGS[bug]
    monkeypatch.setattr(where, name, wrong)

    found = r"was promised|lost|looks corrupt|cannot be read|no such segment|No such file"
    with pytest.raises((AssertionError, FileNotFoundError), match=found):
        list(run_seeds(lambda seed: CrashRun(seed, durability), range(FOUND_WITHIN)))
