"""One line of the table: a server, a kind of crash and a number of crashes, which are done in rounds."""

from __future__ import annotations

import random
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.crash.history import History
from bench.crash.mix import MS, Mix
from bench.crash.process import CrashError
from bench.crash.subjects import Subject
from bench.crash.trial import Result, Trial
from bench.crash.volume import Cut, LoopDevice, PlainDirectory, Volume

KILL = "kill"
_PROGRESS = 10  # crashes between two lines of progress
# The share of kills between power cuts of Penstock's servers: the next process must sync the data of the killed one.
_KILL_ONLY = 0.25
_SEES_FAILURE = 0.5  # share of its power cuts at which it runs on for a moment on a failing disk


def say(text: str) -> None:
    """Print a line of progress to standard error."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Campaign:
    """The crashes behind one line of the table."""

    subject: Subject
    crash: str  # kill, or the file system of the power cuts
    crashes: int

    @property
    def name(self) -> str:
        """Return the name for progress lines."""
        return f"{self.subject.name}, {self.crash if self.crash == KILL else f'power cuts on {self.crash}'}"

    @property
    def window(self) -> int:
        """Return the time in ns before a power cut whose results it may take back."""
        return self.subject.window_ms * MS

    def volume(self, mix: Mix) -> Volume:
        """Make a new volume for the server's data."""
        if self.crash == KILL:
            return PlainDirectory()
        return LoopDevice(self.crash, lambda: self._how(mix))

    def _how(self, mix: Mix) -> Cut:
        if not self.subject.is_penstock:
            return Cut.STILL
        return Cut.KILL if mix.chance(_KILL_ONLY) else Cut.FAILING if mix.chance(_SEES_FAILURE) else Cut.STILL


class Checker:
    """Runs campaigns in rounds, and keeps the history and data of bad ones."""

    def __init__(self, seed: int, round_size: int, keep: Path) -> None:
        self._random = random.Random(seed)
        self._round_size = round_size
        self._keep = keep  # the directory of the histories
        self.kept: list[str] = []  # lines that report bad rounds

    def run(self, campaign: Campaign) -> Result:
        """Run rounds until all crashes are done or a round ends early."""
        total = Result()
        while total.crashes < campaign.crashes:
            count = min(self._round_size, campaign.crashes - total.crashes)
            result = self._round(campaign, total.crashes, count)
            total.add(result)
            if result.crashes < count:
                break
        return total

    def _round(self, campaign: Campaign, before: int, count: int) -> Result:
        name = f"{campaign.subject.name}-{campaign.crash}-{before}".replace(" ", "-")
        history = History(self._keep / f"{name}.history")
        mix = Mix(self._random.getrandbits(32), list(campaign.subject.topics))
        place = campaign.volume(mix)
        trial = Trial(campaign.subject, place, campaign.window, history, mix)

        def progress(done: int, text: str) -> None:
            if done % _PROGRESS == 0 or done == count:
                say(f"{campaign.name}: {before + done}/{campaign.crashes}, {text}")

        try:
            result = trial.run(count, progress)
            if result.bad and campaign.subject.is_penstock:
                self._keep_all(history, place, [*result.alarms, *trial.ledger.problems])
        finally:
            history.close()
            place.close()
        if not result.bad or not campaign.subject.is_penstock:
            history.path.unlink()
        return result

    def _keep_all(self, history: History, place: Volume, problems: list[str]) -> None:
        data = history.path.with_suffix(".data")
        try:
            place.recover()
            shutil.copytree(place.directory, data)
        except (CrashError, OSError) as error:
            problems = [*problems, f"the data could not be kept: {error}"]
        report = [f"{history.path} and {data}:", *(f"  {problem}" for problem in problems)]
        self.kept += report
        say("\n".join(report))
