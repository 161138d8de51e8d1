"""`make campaign` on stages that take no time: its results, a campaign that continues, and its output."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign import ROOT, STAGES, Campaign, Stage, main

pytestmark = pytest.mark.process

GOOD = Stage(
    "good",
    "what is good",
    ("-c", "import os; print(os.environ['PENSTOCK_FIRST']); print('3 passed, 1 skipped')"),
    runs=2,
)
BAD = Stage("bad", "what is bad", ("-c", "print('1 failed, 2 errors'); raise SystemExit(3)"), effort=5)


def test_each_run_is_kept_with_its_output_and_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--directory", str(tmp_path)], [GOOD, BAD]) == 1
    said = capfd.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("[")] == [
        "[1/3] good, run 1 of 2: what is good",
        "[2/3] bad, run 1 of 1: what is bad",
        "[3/3] good, run 2 of 2: what is good",
    ]
    assert f"failed: see {tmp_path / 'bad-0.txt'}" in said
    assert (tmp_path / "good-1.txt").read_text() == "100000\n3 passed, 1 skipped\n"
    first, *lines = (tmp_path / "summary.txt").read_text().splitlines()
    assert first.endswith("3 runs ended, 1 of them failed; 0 are still to come.")
    assert [line.split()[:5] for line in lines][2] == ["bad", "1", "of", "1", "failed"]
    assert "1 failed, 2 error" in lines[2]


def test_an_interrupted_campaign_goes_on_and_another_commit_begins_anew(tmp_path: Path) -> None:
    first = Campaign(tmp_path, [GOOD, BAD], "one")
    first.run(GOOD, 0)
    again = Campaign(tmp_path, [GOOD, BAD], "one")
    assert [(stage.name, number) for stage, number in again.missing()] == [("bad", 0), ("good", 1)]
    assert again.results == first.results
    assert len(list(Campaign(tmp_path, [GOOD, BAD], "two").missing())) == 3


def test_what_is_no_stage_is_refused_and_the_stages_name_tests_that_are_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nonsense"])
    assert "invalid choice" in capsys.readouterr().err
    listed = subprocess.run(
        [sys.executable, "-m", "tests.campaign", "--help"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert all(stage.name in listed for stage in STAGES)
    paths = [word for stage in STAGES for word in stage.command if word.startswith("tests")]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
