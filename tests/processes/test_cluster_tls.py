"""Real nodes that speak TLS to each other, with certificates of `penstock cluster certs`, and strangers without."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons import Daemon, eventually, run
from tests.processes.test_cluster import connected
from tests.processes.test_cluster import node as node  # the fixture

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]


def certificates(directory: Path, nodes: int = 3) -> Path:
    done = run("penstock", "cluster", "certs", str(directory), "--nodes", str(nodes))
    assert done.returncode == 0, done.stderr
    return directory


def tls(directory: Path, number: int) -> dict[str, str]:
    """The flags of a node that shows the certificate of node `number`."""
    return {
        "cluster_tls_cert": str(directory / f"node-{number}.pem"),
        "cluster_tls_key": str(directory / f"node-{number}-key.pem"),
        "cluster_tls_ca": str(directory / "ca.pem"),
    }


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("foreign"))


def test_three_nodes_find_each_other_over_tls_and_may_listen_beyond_loopback(node: NodeMaker, own: Path) -> None:
    with node(0, cluster_address="0.0.0.0:0", broadcast_address="127.0.0.1", **tls(own, 0)) as first:
        assert not [line for line in first.lines if "without authentication" in line], "the secret is asked for"
        peer = f"127.0.0.1:{first.addresses['CLUSTER'].rpartition(':')[2]}"
        with node(1, cluster_peer=peer, **tls(own, 1)) as second, node(2, cluster_peer=peer, **tls(own, 2)) as third:
            for daemon, others in ((first, {1, 2}), (second, {0, 2}), (third, {0, 1})):
                eventually(lambda daemon=daemon, others=others: connected(daemon) == others)


def test_renewed_certificates_count_for_later_connections(
    node: NodeMaker, own: Path, foreign: Path, tmp_path: Path
) -> None:
    mine = certificates(tmp_path / "mine")
    with node(0, **tls(mine, 0)) as first, node(1, first, **tls(mine, 1)) as second:
        eventually(lambda: connected(first) == connected(second) ^ {0, 1} == {1})
        address = second.addresses["CLUSTER"]
        second.stop()
        for path in mine.iterdir():
            path.write_bytes((foreign / path.name).read_bytes())
        first.process.send_signal(signal.SIGHUP)
        first.wait_for_line("SIGHUP: reloaded the certificates of the cluster")
        with node(1, first, cluster_address=address, **tls(own, 1)) as second:
            first.wait_for_line("certificate verify failed")
            second.wait_for_line("WARNING: CLUSTER: refused")
        with node(1, first, cluster_address=address, **tls(foreign, 1)):
            eventually(lambda: connected(first) == {1})
        (mine / "ca.pem").write_text("")
        first.process.send_signal(signal.SIGHUP)
        assert "ca.pem" in first.wait_for_line("SIGHUP: cannot reload the certificates of the cluster")
