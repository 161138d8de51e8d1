"""Runs without a limit on what fails: any number of machines, at any time, and nothing is repaired. Only safety is judged.

While they run, what every run judges at once holds: an acknowledgement has its copies, no id is used twice, one node leads a
log by an epoch, an epoch is durable before it is announced, and no node forgets a vote. Also, now and then and at the end:

* a message acknowledged with n copies, of which fewer than n were lost, is on the disk of some machine;
* a message keeps its offset (offsets.py).
"""

from random import Random

from tests.nsqd.core.node import MS
from tests.simulation.books import Books
from tests.simulation.cluster import STEPS, ClusterRun, small_cluster
from tests.simulation.offsets import Offsets

JUDGE_EVERY = 30  # steps


class UnlimitedRun(ClusterRun):
    def __init__(self, seed: int, nodes: int | None = None, has_jobs: bool | None = None) -> None:
        super().__init__(seed, nodes, has_jobs)
        self.chance = Random(f"unlimited {seed}")
        self.violence = self.chance.choice((1.0, 2.0, 4.0))
        self.offsets = Offsets(self)

    def may_lose(self) -> bool:
        return True

    def run(self) -> Books:
        with small_cluster(self.random):
            try:
                self._heal()  # the cluster is formed
                for step in range(STEPS):
                    self._happen()
                    self.step(self.chance.choice((5, 20, 100, 300, 1000)) * MS)
                    if step % JUDGE_EVERY == JUDGE_EVERY - 1:
                        self._judge_safety()
            except AssertionError as error:
                error.add_note("\n".join(self.lines[-60:]))
                raise
        return self.books

    def _judge_safety(self) -> None:
        """Assert that unfinished messages are on a disk, and that offsets have not changed."""
        self.offsets.judge()
        disks = [disk for one in self.machines for disk in (*one.disks.all(), *one.disks.waiting.values())]
        disks += [copy.disk for one in self.machines for copy in one.disks.copies()]
        contents = [disk.content(name) for disk in disks for name in disk.kill().names()]
        for publish in self.books.owed():
            if self.governed.has_end(publish):
                continue
            assert any(publish.body in content for content in contents), f"on no disk: {publish}"
            self.books.counts["messages found on a disk"] += 1
