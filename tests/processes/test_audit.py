"""Real daemons with an audit: records of changes and refusals on each port, and how the file lives on.

tests/nsqd/http/test_audited.py and tests/nsqd/protocols/rights/test_recording.py test what is recorded of which command.
"""

import os
import signal
from pathlib import Path

import httpx
import pytest

from shared.audit.chain import FIRST, Head, Record, decode, follow
from tests.auth_files import bearer, token, write
from tests.certificates import Authority
from tests.daemons import eventually, nsqd, post, run
from tests.processes.test_rights import FLAGS

pytestmark = pytest.mark.process


def whole_lines(path: Path) -> bytes:
    """The content of a file up to its last whole line: a reader may see a write before all of it is there."""
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def read(*paths: Path) -> list[Record]:
    """The records of files that form one chain from its beginning on."""
    lines = [line for path in paths for line in whole_lines(path).splitlines()]
    head = Head()
    for line in lines:
        head = follow(head, line)
    return [decode(line) for line in lines]


class Audited:
    """An nsqd with an audit."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def wait_for(self, action: str, outcome: str = "done", **more: object) -> Record:
        """The newest record of an action."""
        wanted, found = {"action": action, "outcome": outcome} | more, list[Record]()

        def is_there() -> bool:
            found[:] = [one for one in read(self.file) if wanted.items() <= one.items()]
            return bool(found)

        eventually(is_there)
        return found[-1]


def test_changes_and_refusals_at_each_port_and_of_the_auth_file(tmp_path: Path) -> None:
    auth, authority = tmp_path / "auth.toml", Authority(tmp_path)
    write(auth, "viewer", "admin")
    (tmp_path / "secret").write_text("s" * 32)
    flags = ("-auth-file", str(auth), "-audit-file", str(tmp_path / "audit"), *authority.flags(), *FLAGS)
    cluster = ("-cluster-address", "127.0.0.1:0", "-cluster-secret-file", str(tmp_path / "secret"), "-node-id", "7")
    listens = ("TCP", "HTTP", "HTTPS", "CLUSTER", "DISQUE")
    with nsqd(tmp_path / "data", *flags, *cluster, "-https-address", "127.0.0.1:0", listens=listens) as node:
        audited = Audited(tmp_path / "audit")
        for name, port, said, reply, action in (
            ("TCP", "nsq", b"  V2SUB orders api\n", b"E_AUTH_FIRST", "SUB"),
            ("BEANSTALK", "beanstalkd", b"put 0 0 9 11\r\nsecret-body\r\n", b"UNAUTHORIZED", "put"),
            ("DISQUE", "disque", b"ADDJOB jobs secret-body 0\r\n", b"-NOAUTH", "ADDJOB"),
            ("CLUSTER", "cluster", b"no frame of ours" * 10, b"", "connect"),
        ):
            with node.connect(name) as sock:
                sock.sendall(said)
                assert reply in sock.recv(1000)
            found = audited.wait_for(action, "refused", port=port)
            assert (found["who"], found["address"]) == ("", "127.0.0.1")
        url = f"https://{node.addresses['HTTPS']}/topic"
        for verb, name, status in (("delete", "viewer", 403), ("create", "admin", 200)):
            answer = httpx.post(f"{url}/{verb}?topic=t", headers=bearer(name), verify=authority.client())
            assert answer.status_code == status
        found = audited.wait_for("topic/delete", "refused", port="https", target="t")
        assert (found["who"], found["address"]) == ("viewer", "127.0.0.1")
        found = audited.wait_for("topic/create", port="https", target="t")
        assert (found["who"], found["by"]) == ("admin", "token")
        audited.wait_for("topic/created", port="process", target="t")
        text = auth.read_text()
        auth.write_text(text + "\n# changed\n")
        audited.wait_for("auth/reload")
        auth.write_text("x = [")
        audited.wait_for("auth/reload", "failed")
        auth.write_text(text)
        os.utime(auth, (1, 1))
        eventually(lambda: len([one for one in read(audited.file) if one["action"] == "auth/reload"]) >= 3)
        metrics = httpx.get(f"http://{node.http}/metrics").text
        assert "nsqd_audit_left_out_total 0.0" in metrics
        assert float(metrics.split("\nnsqd_audit_records_total ")[1].split()[0]) >= len(read(audited.file)) - 1
    said = audited.file.read_text() + node.stderr
    assert [secret for secret in ("secret-body", *map(token, ("viewer", "admin"))) if secret in said] == []


def test_without_an_auth_file_and_over_restarts_and_rotation(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    flags = "-audit-file", str(file), "-node-id", "7"
    with nsqd(tmp_path / "data", *flags) as node:
        post(node, "/topic/create", topic="first")
        found = Audited(file).wait_for("topic/create", target="first")
        assert (found["who"], found["by"], found["node"]) == ("", "", 7)
        file.rename(tmp_path / "audit.1")
        node.process.send_signal(signal.SIGHUP)
        eventually(file.exists)
        eventually(lambda: read(tmp_path / "audit.1", file)[-1]["action"] == "process/SIGHUP")
        post(node, "/topic/create", topic="second")
    with file.open("ab") as torn:
        torn.write(b'{"seq":')
    with nsqd(tmp_path / "data", *flags) as node:
        post(node, "/topic/delete", topic="first")
    records = read(tmp_path / "audit.1", file)
    assert records[0]["prev"] == FIRST
    actions = [one["action"] for one in records]
    assert [action for action in actions if action not in ("topic/created", "topic/deleted")] == [
        "process/start", "topic/create", "process/SIGHUP", "topic/create", "process/stop",
        "audit/torn", "process/start", "topic/delete", "process/stop",
    ]  # fmt: skip
    assert file.stat().st_mode & 0o777 == 0o640 & ~_umask()
    done = run("penstock", "audit", "verify", str(tmp_path / "audit.1"), str(file))
    assert done.stdout.startswith("12 records, chain unbroken\n"), done.stdout


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
