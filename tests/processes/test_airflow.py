"""A triggerer of Airflow, where that is installed: every message becomes an event over kills of node and triggerer."""

from pathlib import Path

import pytest

from tests.daemons import Daemon, eventually, nsqd, publish
from tests.processes.task_workers import PATIENCE, kill, lines, worker

pytest.importorskip("airflow.triggers.shared_stream", reason="Airflow 3.3 is not installed (100 packages)")
pytestmark = pytest.mark.process
TRIGGERER = "tests.processes.airflow_app"


def node_at(directory: Path, address: str) -> Daemon:
    return nsqd(directory / "data", "-tcp-address", address, "-msg-timeout", "1s")


def test_every_message_is_stored_over_kills_of_the_node_and_of_the_triggerer(tmp_path: Path) -> None:
    with node_at(tmp_path, "127.0.0.1:0") as node, worker(tmp_path, node.tcp, TRIGGERER, "stuck") as triggerer:
        publish(node, "events", *map(str, range(20)))
        eventually(lambda: "0" in lines(tmp_path), PATIENCE)
        node.kill()
        with node_at(tmp_path, node.tcp) as again:
            publish(again, "events", *map(str, range(20, 40)))
            eventually(lambda: {*map(str, range(40))} <= {*lines(tmp_path)}, PATIENCE)
            publish(again, "events", "stuck")
            eventually(lambda: "begin stuck" in lines(tmp_path), PATIENCE)
            kill(triggerer)
            with worker(tmp_path, node.tcp, TRIGGERER):
                eventually(lambda: "stuck" in lines(tmp_path), PATIENCE)
