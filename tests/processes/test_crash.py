"""bench/crash against real daemons: kills in each mode and power cuts lose nothing, and what is lost is caught.

This is CI's share of the trials; `make crash` is the long form.
See docs/contributing/testing.md#kills and docs/contributing/testing.md#power-cuts.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.crash import volume
from bench.crash.campaign import Campaign
from bench.crash.history import History
from bench.crash.mix import Mix
from bench.crash.process import Process
from bench.crash.subjects import penstock, penstock_jobs
from bench.crash.trial import Result, Trial
from tests.effort import tries

pytestmark = pytest.mark.process

SEED = 20


def in_campaign(*arguments: object) -> object:
    return pytest.param(*arguments, marks=pytest.mark.campaign)


def run(campaign: Campaign, place: volume.Volume, directory: Path) -> Result:
    """One trial; its problems and history are shown if the test fails."""
    history = History(directory / "history")
    mix = Mix(SEED, list(campaign.subject.topics))
    trial = Trial(campaign.subject, place, campaign.window, history, mix)
    try:
        result = trial.run(campaign.crashes, lambda done, text: None)
    finally:
        place.close()
        history.close()
    print(*trial.ledger.problems, *result.alarms, sep="\n")
    return result


def assert_kept(result: Result, crashes: int) -> None:
    """It was tried, and nothing promised is missing."""
    counts = result.findings
    assert not result.bad
    assert result.crashes == crashes
    assert counts.survived + counts.excused == counts.acked
    assert counts.survived > 0
    assert counts.resurrected == 0
    assert counts.deliveries > 0


@pytest.mark.parametrize(("mode", "kills"), [("always", tries(2)), in_campaign("interval", 3), ("os", tries(1))])
def test_kills_lose_nothing(mode: str, kills: int, tmp_path: Path) -> None:
    result = run(Campaign(penstock(mode), "kill", kills), volume.PlainDirectory(), tmp_path)
    assert_kept(result, kills)
    assert result.findings.excused == 0  # that is for power cuts: the kernel may lie to a sync of that very moment


@pytest.mark.parametrize(("mode", "kills"), [("always", tries(1)), in_campaign("os", 2)])
def test_kills_lose_no_job_and_change_no_order(mode: str, kills: int, tmp_path: Path) -> None:
    result = run(Campaign(penstock_jobs(mode), "kill", kills), volume.PlainDirectory(), tmp_path)
    assert_kept(result, kills)
    assert result.findings.excused == 0


@pytest.mark.parametrize(
    ("subject", "kind"), [(penstock, "ext4"), in_campaign(penstock, "xfs"), in_campaign(penstock_jobs, "ext4")]
)
def test_power_cuts_lose_nothing_in_the_mode_always(subject: Callable[[str], Any], kind: str, tmp_path: Path) -> None:
    kinds, reason = volume.kinds()
    if kind not in kinds:
        pytest.skip(f"no power can be cut: {reason or f'there is no mkfs.{kind}'}")
    try:
        place = volume.LoopDevice(kind, iter([volume.Cut.STILL, volume.Cut.KILL, volume.Cut.FAILING] * 9).__next__)
    except volume.CrashError as error:
        pytest.skip(f"no power can be cut: {error}")

    cuts = tries(1)
    assert_kept(run(Campaign(subject("always"), kind, cuts), place, tmp_path), cuts)


class Forgetful(volume.PlainDirectory):
    """A disk that takes the log with it."""

    def crash(self, process: Process) -> volume.Strike:
        blow = super().crash(process)
        shutil.rmtree(self.directory / "log", ignore_errors=True)
        return blow


def test_a_server_that_forgets_is_caught(tmp_path: Path) -> None:
    result = run(Campaign(penstock("always"), "kill", 1), Forgetful(), tmp_path)

    assert result.bad
    assert result.findings.lost > 0
    history = (tmp_path / "history").read_text()
    assert all(f" {word}" in history for word in ("publish busy", "ok 0", "crash ", "drain"))


def test_a_server_that_does_not_start_again_is_an_alarm(tmp_path: Path) -> None:
    place = volume.PlainDirectory()
    (place.directory / "log").write_text("a file where a directory should be")

    result = run(Campaign(penstock("always"), "kill", 1), place, tmp_path)

    assert result.bad
    assert "did not start" in result.alarms[0]
