"""The checker's beanstalkd links, without a socket: over time a worker uses every answer that it knows."""

from typing import Any, cast

from bench.crash.beanstalk_links import TUBE, Worker
from bench.crash.history import History
from bench.crash.ledger import Ledger
from bench.crash.messages import Reply
from bench.crash.mix import Mix

JOBS = 500


def test_a_worker_deletes_releases_buries_and_kicks(tmp_path: Any) -> None:
    ledger, history = Ledger({TUBE: (TUBE,)}, 0), History(tmp_path / "history")
    worker = Worker(cast(Any, None), ledger, history, Mix(20, [TUBE]))
    for job in range(JOBS):
        (message,) = ledger.publish(TUBE, [20], 0, job)
        ledger.answered([message], Reply.OK, job)
        worker.received(b"RESERVED %d %d\r\n%b\r\n" % (job, len(message.body), message.body), job)
        while (said := bytes(worker._out)).startswith((b"delete", b"release", b"bury", b"kick")):
            worker._out.clear()
            worker.received(
                {b"d": b"DELETED", b"r": b"RELEASED", b"b": b"BURIED", b"k": b"KICKED"}[said[:1]] + b"\r\n", job
            )
        worker._out.clear()
    history.close()
    lines = history.path.read_text()
    assert all(f" {verb} {TUBE}" in lines for verb in ("fin", "req", "bury", "kick"))
    assert lines.count(f" kick {TUBE}") <= lines.count(f" bury {TUBE}")
