"""Run many seeds of the simulated cluster, and print what happened in all of them.

    python -m tests.simulation.totals FIRST COUNT [SECONDS]

It begins no run after SECONDS. It ends with status 1 if a run failed, and names the seed of each run that did.
"""

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf

from tests.simulation.cluster import ClusterRun

EVERY = 50  # seeds between two lines that say how far it is


@dataclass
class Totals:
    seeds: int = 0
    failed: dict[int, str] = field(default_factory=dict)  # why, by seed
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int) -> None:
        """Run a seed, and count what happened in it, also if it fails."""
        run = ClusterRun(seed)
        self.seeds += 1
        try:
            run.run()
        except Exception as error:  # a fault of the nodes may raise anything, and the other seeds are to run, too
            self.failed[seed] = f"{type(error).__name__}: {str(error)[:500]}"
        self.counts.update(run.books.counts)

    def lines(self) -> list[str]:
        """Return the totals as text: each kind of event with how often it happened."""
        counts = self.counts
        acknowledged = sum(number for what, number in counts.items() if what.startswith("acked with"))
        lines = [f"{self.seeds} seeds, {len(self.failed)} failed", f"{acknowledged} acknowledged messages and jobs"]
        return lines + [f"{counts[what]} {what}" for what in sorted(counts)]


def main(first: int, count: int, seconds: float = inf) -> int:
    """Run `count` seeds from `first` on, as many as begin within `seconds`. Returns the status of the process."""
    totals, until = Totals(), time.monotonic() + seconds
    for seed in range(first, first + count):
        if time.monotonic() >= until:
            break
        totals.add(seed)
        if seed in totals.failed:
            print(f"seed {seed}: {totals.failed[seed]}", flush=True)
        if totals.seeds % EVERY == 0:
            print(f"{totals.seeds} seeds, {len(totals.failed)} failed", file=sys.stderr, flush=True)
    print("\n".join(totals.lines()))
    return bool(totals.failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:])))
