"""`python -m bench.crash`: reads the options, tests the servers, prints the table. bench/crash/__init__.py explains it."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench.crash import subjects, volume
from bench.crash.campaign import KILL, Campaign, Checker, say
from bench.crash.subjects import Subject
from bench.crash.trial import Result
from bench.table import table

_MODES = ("always", "interval", "os")
_HEADER = (
    "row", "crash", "crashes", "outstanding", "acked", "survived", "lost", "excused", "early", "inverted", "dup", "resurrected",
    "unexpected", "ids", "s/crash",
)  # fmt: skip
_QUICK_KILLS, _QUICK_CUTS = 4, 2


def campaigns(given: argparse.Namespace) -> tuple[list[Campaign], list[str]]:
    """Return the campaigns to run, and notes on what cannot be run and why."""
    modes = _MODES if given.mode == "all" else (given.mode,)
    penstock: list[Subject] = []
    if given.protocol != "beanstalkd":
        penstock += [subjects.penstock(mode, given.flag) for mode in modes]
    if given.protocol != "nsq":
        penstock += [subjects.penstock_jobs(mode) for mode in modes]
    others: list[Subject] = [
        *(subjects.go_nsqds(given.nsqd) if given.nsqd else []),
        *(subjects.beanstalkds(given.beanstalkd) if given.beanstalkd else []),
    ]
    chosen = [Campaign(subject, KILL, given.kills) for subject in [*penstock, *others] if given.kills]
    if not given.power_cuts:
        return chosen, []
    kinds, reason = volume.kinds()
    notes = [f"no power cuts: {reason}"] if reason else []
    for kind in kinds:
        chosen += [Campaign(subject, kind, given.power_cuts) for subject in [*penstock, *others]]
    return chosen, notes


def line(campaign: Campaign, result: Result) -> list[str]:
    """Return the cells of one line of the table."""
    v = result.findings
    counts = [result.crashes, result.outstanding, v.acked, v.survived, v.lost, v.excused, v.early, v.inverted]
    rate = f"{100 * v.duplicated / v.deliveries:.2f} %" if v.deliveries else "-"
    pace = f"{result.seconds / result.crashes:.2f}" if result.crashes else "-"
    rest = [str(v.resurrected), str(v.unexpected), str(v.collisions), pace]
    return [campaign.subject.name, campaign.crash, *map(str, counts), rate, *rest]


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; --quick limits the crashes."""
    parser = argparse.ArgumentParser("bench.crash", description="What survives kill -9 and power cuts.")
    parser.add_argument("--mode", choices=(*_MODES, "all"), default="all", help="durability of our nsqd (all)")
    parser.add_argument(
        "--protocol", choices=("nsq", "beanstalkd", "both"), default="both", help="whose clients try our daemon (both)"
    )
    parser.add_argument("--kills", type=int, default=200, help="of each server (200)")
    parser.add_argument("--power-cuts", type=int, default=100, help="of each server and file system, as root (100)")
    parser.add_argument("--round", type=int, default=50, help="crashes before the directory is emptied (50)")
    parser.add_argument("--flag", action="append", default=[], help="one more flag of our nsqd; may be given again")
    parser.add_argument("--nsqd", metavar="PATH", help="a Go nsqd to be tried as well")
    parser.add_argument("--beanstalkd", metavar="PATH", help="a beanstalkd to be tried as well")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the load; it is printed")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where histories are written (a temporary directory)")
    parser.add_argument(
        "--quick", action="store_true", help=f"at most {_QUICK_KILLS} kills and {_QUICK_CUTS} power cuts of each"
    )
    given = parser.parse_args(arguments)
    if given.quick:
        given.kills, given.power_cuts = min(given.kills, _QUICK_KILLS), min(given.power_cuts, _QUICK_CUTS)
    return given


def main(arguments: Sequence[str]) -> int:
    """Run the campaigns; return the exit code: 1 if a server of ours broke a promise."""
    given = options(arguments)
    chosen, notes = campaigns(given)
    keep = Path(given.keep or tempfile.mkdtemp(prefix="penstock-crash-history-"))
    keep.mkdir(parents=True, exist_ok=True)
    say(f"seed {given.seed}, histories in {keep}")
    checker = Checker(given.seed, given.round, keep)
    results = [(campaign, checker.run(campaign)) for campaign in chosen]
    if not checker.kept and not given.keep:
        keep.rmdir()
    print(table(_HEADER, [line(campaign, result) for campaign, result in results]))
    print("\n".join([*notes, *(_note(campaign, result) for campaign, result in results), *checker.kept]))
    return int(any(result.bad for campaign, result in results if campaign.subject.is_penstock))


def _note(campaign: Campaign, result: Result) -> str:
    v = result.findings
    return (
        f"{campaign.name}: {v.deliveries} deliveries, {v.unknown} messages without a reply, {v.refused} refused;"
        f" {result.starting} crashes more while it started{f', {result.kills} kills between' if result.kills else ''}"
    )


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)  # so that the servers and their files are removed with us
    sys.exit(main(sys.argv[1:]))
