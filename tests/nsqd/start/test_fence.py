"""A node whose log is another one's does not open it again, and its listeners keep the connections that wait."""

import signal
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import trio

from nsqd.options import NsqdOptions
from nsqd.start import fence as fence_module
from nsqd.start.fence import Fence, open_patiently
from nsqd.start.listeners import Listeners, again, close_sockets
from nsqd.storage.directory import DataDirectory
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.identity import read_identity
from shared.process.listen import listen
from tests.nsqd.storage.log.test_restore import start
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE

pytestmark = pytest.mark.process

LEADER = Epoch(101, 2, b"ownerown")


def listening(path: Path) -> Listeners:
    optional = (None,) * 8
    return Listeners((listen(str(path)),), *optional, b"", None, None, None, None)


def test_a_log_that_is_fenced_off_is_not_opened_before_a_node_reports_its_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start(SimDisk(Random(1)))
    node.publish()
    node.log.close()
    (tmp_path / "log").mkdir()
    for name in node.disk.names():
        (tmp_path / "log" / name).write_bytes(node.disk.content(name))
    identity, asked = read_identity(node.disk), 0

    async def signals() -> AsyncIterator[int]:
        nonlocal asked
        asked += 1
        if asked == 3:
            yield signal.SIGTERM
        await trio.sleep_forever()

    monkeypatch.setattr(fence_module, "ASK_AGAIN", 0.0)
    options = NsqdOptions(node_id=NODE, data_path=str(tmp_path), cluster_address="127.0.0.1:0")
    before = {one.name: one.read_bytes() for one in (tmp_path / "log").iterdir()}
    with closing(DataDirectory(str(tmp_path))) as directory, closing(listening(tmp_path / "socket").tcp[0]) as tcp:
        found = Listeners(
            (tcp,), *(None,) * 7, tcp, b"a secret of 17 bytes", None, None, None, None
        )  # no process listens
        fence = Fence(identity.log_id, LEADER, found, 0)

        class Again:
            """Signals that are asked for again each time."""

            def __aiter__(self) -> AsyncIterator[int]:
                return signals()

            async def __anext__(self) -> int:
                raise AssertionError("only iterated")

        assert trio.run(open_patiently, options, directory, found, Again(), fence) is None
    assert (asked, caplog.text.count("this node cannot continue")) == (3, 1)
    assert before == {one.name: one.read_bytes() for one in (tmp_path / "log").iterdir()}


def test_connections_wait_while_a_daemon_is_built_again(tmp_path: Path) -> None:
    first = listening(tmp_path / "socket")
    second = again(replace(first, cluster=listen("127.0.0.1:0")))
    assert second.cluster is not None
    close_sockets(first)
    with closing(first.tcp[0]), closing(second.cluster), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "socket"))
        accepted, _ = second.tcp[0].socket.accept()
        accepted.close()
        close_sockets(second)
    assert not (tmp_path / "socket").exists()
