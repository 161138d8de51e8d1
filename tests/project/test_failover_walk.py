"""A message and its failover: ARCHITECTURE.md names the functions in the order in which a simulated cluster calls them."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

from nsqd.cluster.ownership.cases import Quorum
from tests.daemons import ROOT
from tests.simulation.history import History
from tests.simulation.machine import Machine

SECTION = re.compile(r"## A message and its failover\n(.*?)Now the leader is killed:\n(.*?)\n## ", re.DOTALL)
NAMED = re.compile(r"`(nsqd/[\w/]+\.py)`:\s+`([\w.]+)`|`([A-Z]\w+\.\w+)`")
SEEDS = range(1, 20)


def documented() -> tuple[list[str], list[str]]:
    """The functions that the page names, for the publish and for the failover."""
    found = SECTION.search((ROOT / "ARCHITECTURE.md").read_text())
    assert found is not None
    return _named(found[1]), _named(found[2])


def _named(text: str) -> list[str]:
    file, names = "", []
    for path, name, alone in NAMED.findall(text):
        file = path or file
        names.append(f"{file}: {name or alone}")
    return names


class Calls:
    """The functions of nsqd in the order in which they were called first."""

    def __init__(self) -> None:
        self.order: dict[str, int] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(f"{ROOT}/nsqd/"):
            self.order.setdefault(f"{name.removeprefix(f'{ROOT}/')}: {frame.f_code.co_qualname}", len(self.order))


def called(seed: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the functions that a publish calls, and those that the failover after it calls, each with its place."""
    published, promoted = Calls(), Calls()

    def serves(run: History, machine: Machine, log_id: bytes) -> bool:
        owned = machine.node.promoted.promotions.logs.get(log_id)
        return owned is not None and owned.state == "serving"

    def story(run: History) -> None:
        leader, *others = run.machines
        run.wait(6)
        with published.noted():
            run.publish_batch(leader, 2, 1)
        run.kill(leader)
        with promoted.noted():
            run.until(lambda: any(serves(run, other, leader.log_id) for other in others))

    History(seed, Quorum.MAJORITY).play(story)
    return published.order, promoted.order


def test_the_page_names_what_is_called_in_its_order() -> None:
    """Frames of other business cross these in some runs, and a refusal comes before a promise: one run has the page's order."""
    pages, wrong = documented(), []
    assert all(len(names) >= 10 for names in pages)
    for seed in SEEDS:
        orders = called(seed)
        for names, order in zip(pages, orders, strict=True):
            missing = [name for name in names if name not in order]
            assert not missing, "these are not called"
        wrong = [
            (one, two)
            for names, order in zip(pages, orders, strict=True)
            for one, two in pairwise(names)
            if order[one] > order[two]
        ]
        if not wrong:
            return
    raise AssertionError(f"these are called in another order: {wrong}")
