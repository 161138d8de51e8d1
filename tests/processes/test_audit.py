"""Real daemons with an audit: what is recorded of changes and refusals on each port, and how the file lives on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.audit.chain import FIRST, Head, Record, decode, follow
from shared.auth.on_behalf import SIGNATURE, USER, headers_on_behalf
from shared.auth.verbs import BUILT_IN
from tests.auth_files import bearer, token, write
from tests.certificates import Authority
from tests.daemons import Conversation, Daemon, drained, eventually, nsqd, post, run
from tests.processes.test_rights import FLAGS

pytestmark = pytest.mark.process

WRONG = "pst_" + "w" * 43
SECRETS = ("secret-body", "secret-value", WRONG, *map(token, ("admin", "orders", *BUILT_IN)))


def whole_lines(path: Path) -> bytes:
    """What a file has, up to its last whole line: a reader may see a write before all of it is there."""
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
    """An nsqd with an auth file and an audit."""

    def __init__(self, node: Daemon, file: Path) -> None:
        self.node, self.file = node, file

    def ask(self, method: str, path: str, name: str = "", **more: Any) -> int:
        headers = (bearer(name) if name else {}) | more.pop("headers", {})
        return httpx.request(method, f"http://{self.node.http}{path}", headers=headers, **more).status_code

    def wait_for(self, action: str, outcome: str = "done", **more: object) -> Record:
        """The newest record of an action."""
        found: list[Record] = []

        def is_there() -> bool:
            found[:] = [one for one in read(self.file) if (one["action"], one["outcome"]) == (action, outcome)]
            found[:] = [one for one in found if all(one.get(key) == value for key, value in more.items())]
            return bool(found)

        eventually(is_there)
        return found[-1]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    directory = tmp_path_factory.mktemp("audited")
    write(directory / "auth.toml", "orders", *BUILT_IN)
    flags = "-auth-file", str(directory / "auth.toml"), "-audit-file", str(directory / "audit"), *FLAGS
    with nsqd(directory / "data", *flags, listens=("TCP", "HTTP", "DISQUE")) as node:
        yield Audited(node, directory / "audit")
    text = (directory / "audit").read_text() + node.stderr
    assert [secret for secret in SECRETS if secret in text] == []
    # what is summed up of the last window may come behind it
    assert "process/stop" in [record["action"] for record in read(directory / "audit")]


def test_changes_over_http_with_a_token(audited: Audited) -> None:
    assert audited.ask("POST", "/topic/create?topic=orders", "admin") == 200
    found = audited.wait_for("topic/create", target="orders")
    assert (found["who"], found["by"], found["port"], found["address"]) == ("admin", "token", "http", "127.0.0.1")
    assert "user" not in found
    made = audited.wait_for("topic/created", target="orders")
    assert (made["who"], made["port"]) == ("", "process")
    for path, action, target in (
        ("/channel/create?topic=orders&channel=api", "channel/create", "orders api"),
        ("/channel/pause?topic=orders&channel=api", "channel/pause", "orders api"),
        ("/topic/config?topic=orders&retention=1h", "topic/config", "orders"),
        ("/node/drain", "node/drain", ""),
        ("/node/undrain", "node/undrain", ""),
    ):
        assert audited.ask("POST", path, "admin") == 200
        audited.wait_for(action, target=target, who="admin")
    assert audited.ask("PUT", "/config/log_level", "admin", content=b"info") == 200
    audited.wait_for("PUT config", target="log_level")
    assert audited.ask("GET", "/config/auth_file", "admin") == 200
    audited.wait_for("GET config", target="auth_file")
    assert audited.ask("GET", "/backup", "admin") == 200
    audited.wait_for("GET backup")


def test_refusals_over_http(audited: Audited) -> None:
    assert audited.ask("POST", "/topic/delete?topic=orders", "viewer") == 403
    assert audited.wait_for("topic/delete", "refused", target="orders")["who"] == "viewer"
    assert audited.ask("POST", "/pub?topic=orders", "viewer", content=b"secret-body") == 403
    assert audited.wait_for("pub", "refused", target="orders")["who"] == "viewer"
    assert audited.ask("GET", "/stats") == 401
    assert audited.wait_for("GET stats", "refused")["who"] == ""
    with httpx.Client(base_url=f"http://{audited.node.http}", headers={"Authorization": f"Bearer {WRONG}"}) as client:
        codes = {client.get("/stats").status_code for _ in range(60)}
    assert codes == {401, 429}
    audited.wait_for("GET stats", "throttled")
    assert len([one for one in read(audited.file) if one["action"] == "GET stats"]) <= 12


def test_a_signed_name_of_a_user(audited: Audited) -> None:
    path = "/topic/create?topic=of-ann"
    signed = headers_on_behalf(token("admin"), "ann", "POST", path)
    assert audited.ask("POST", path, "admin", headers=signed) == 200
    assert audited.wait_for("topic/create", target="of-ann")["user"] == "ann"
    for name, headers in (
        ("admin", {USER: "bob", SIGNATURE: signed[SIGNATURE]}),  # another user
        ("admin", {USER: "ann"}),
        ("admin", {USER: "ann", SIGNATURE: "0" * 64}),
        ("operator", headers_on_behalf(token("operator"), "ann", "POST", path)),  # not an admin
        ("", signed),
    ):
        assert audited.ask("POST", path, name, headers=headers) == (403 if name else 401)
    other = headers_on_behalf(token("admin"), "ann", "POST", "/topic/create?topic=other")
    assert audited.ask("POST", path, "admin", headers=other) == 403
    refused = audited.wait_for("topic/create", "refused", target="of-ann", who="admin")
    assert "user" not in refused


@pytest.mark.parametrize(
    ("name", "port", "said", "heard", "action"),
    [
        ("TCP", "nsq", b"  V2SUB orders api\n", b"E_AUTH_FIRST", "SUB"),
        ("BEANSTALK", "beanstalkd", b"put 0 0 9 11\r\nsecret-body\r\n", b"UNAUTHORIZED", "put"),
        ("DISQUE", "disque", b"ADDJOB jobs secret-body 0\r\n", b"-NOAUTH", "ADDJOB"),
    ],
)
def test_refusals_at_each_port(audited: Audited, name: str, port: str, said: bytes, heard: bytes, action: str) -> None:
    with audited.node.connect(name) as sock:
        sock.sendall(said)
        assert heard in sock.recv(1000)
    found = audited.wait_for(action, "refused", port=port)
    assert (found["who"], found["address"]) == ("", "127.0.0.1")


def test_the_auth_file_and_metrics(audited: Audited) -> None:
    file = audited.file.with_name("auth.toml")
    text = file.read_text()
    file.write_text(text + "\n# changed\n")
    audited.wait_for("auth/reload")
    file.write_text("x = [")
    audited.wait_for("auth/reload", "failed")
    file.write_text(text)
    os.utime(file, (1, 1))
    eventually(lambda: len([one for one in read(audited.file) if one["action"] == "auth/reload"]) >= 3)
    metrics = httpx.get(f"http://{audited.node.http}/metrics").text
    assert "nsqd_audit_left_out_total 0.0" in metrics
    count = float(metrics.split("\nnsqd_audit_records_total ")[1].split()[0])
    assert count >= len(read(audited.file)) - 1


def test_penstock_audit(audited: Audited) -> None:
    assert audited.ask("POST", "/topic/create?topic=shown", "admin") == 200
    audited.wait_for("topic/create", target="shown")
    copy = audited.file.with_name("copy")
    copy.write_bytes(whole_lines(audited.file))
    done = run("penstock", "audit", "verify", str(copy))
    assert (done.returncode, "chain unbroken" in done.stdout) == (0, True), done.stderr
    shown = run("penstock", "audit", "show", str(copy), "--action", "topic/create", "--who", "admin").stdout
    assert "shown" in shown
    lines = copy.read_bytes().splitlines(keepends=True)
    copy.write_bytes(b"".join([lines[0], lines[2]]))
    done = run("penstock", "audit", "verify", str(copy))
    assert (done.returncode, f"{copy}, line 2: it does not follow" in done.stdout) == (1, True)


def test_without_an_auth_file_and_over_restarts_and_rotation(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    flags = "-audit-file", str(file), "-node-id", "7"
    with nsqd(tmp_path / "data", *flags) as node:
        post(node, "/topic/create", topic="first")
        audited = Audited(node, file)
        found = audited.wait_for("topic/create", target="first")
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


def test_refusals_over_https_and_between_nodes(tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "viewer")
    authority = Authority(tmp_path)
    (tmp_path / "secret").write_text("s" * 32)
    flags = ("-auth-file", str(tmp_path / "auth.toml"), "-audit-file", str(tmp_path / "audit"), *authority.flags())
    cluster = ("-cluster-address", "127.0.0.1:0", "-cluster-secret-file", str(tmp_path / "secret"), "-node-id", "7")
    listens = ("TCP", "HTTP", "HTTPS", "CLUSTER")
    with nsqd(tmp_path / "data", *flags, *cluster, "-https-address", "127.0.0.1:0", listens=listens) as node:
        audited = Audited(node, tmp_path / "audit")
        url = f"https://{node.addresses['HTTPS']}/topic/delete?topic=t"
        assert httpx.post(url, headers=bearer("viewer"), verify=authority.client()).status_code == 403
        found = audited.wait_for("topic/delete", "refused", port="https", target="t")
        assert (found["who"], found["address"]) == ("viewer", "127.0.0.1")
        with node.connect("CLUSTER") as sock:
            sock.sendall(b"no frame of ours" * 10)
            while sock.recv(1000):
                pass
        assert audited.wait_for("connect", "refused", port="cluster")["address"] == "127.0.0.1"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_audit_topic(tmp_path: Path) -> None:
    flags = "-audit-file", str(tmp_path / "audit"), "-audit-topic", "audit"
    with nsqd(tmp_path / "data", *flags) as node:
        post(node, "/topic/create", topic="audit")  # it may be there: the record of the start is published to it
        post(node, "/channel/create", topic="audit", channel="reader")
        post(node, "/topic/create", topic="orders")
        Audited(node, tmp_path / "audit").wait_for("topic/create", target="orders")
    with nsqd(tmp_path / "data", "-audit-file", str(tmp_path / "audit")) as node:
        before = (tmp_path / "audit").read_bytes().splitlines()
        before = [line for line in before if json.loads(line)["seq"] <= _last_stop(before)]
        assert drained(node, "audit", "reader", len(before)) == before
    assert len(read(tmp_path / "audit")) > len(before)


def _last_stop(lines: list[bytes]) -> int:
    return max(record["seq"] for record in map(json.loads, lines) if record["action"] == "process/stop")


def test_an_audit_topic_without_a_file(tmp_path: Path) -> None:
    with nsqd(tmp_path / "data", "-audit-topic", "audit") as node:
        post(node, "/topic/create", topic="audit")  # it may be there: the record of the start is published to it
        post(node, "/channel/create", topic="audit", channel="reader")
        post(node, "/topic/create", topic="orders")
        head, actions = Head(), []
        for line in drained(node, "audit", "reader", 7):
            head = follow(head, line)
            actions.append((json.loads(line)["action"], json.loads(line)["target"]))
        assert ("topic/create", "orders") in actions
        assert len(actions) == len(set(actions)) == 7
        assert actions.count(("topic/created", "audit")) == 1


def test_a_flood_of_wrong_tokens_is_a_few_records(tmp_path: Path) -> None:
    write(tmp_path / "auth.toml", "viewer")
    flags = "-auth-file", str(tmp_path / "auth.toml"), "-audit-file", str(tmp_path / "audit")
    secret = WRONG.encode()
    with nsqd(tmp_path / "data", *flags) as node, ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(Conversation(node, b"  V2AUTH\n" + len(secret).to_bytes(4) + secret))
            assert client.frame() == (1, b"E_AUTH_FAILED AUTH failed")
    refused = [one for one in read(tmp_path / "audit") if one["action"] == "AUTH"]
    assert len(refused) <= 60  # 5 and a sum in each 10 s
    assert sum(one.get("count", 1) for one in refused) == 200


@pytest.mark.parametrize("path", ["none/audit", "."])
def test_a_file_that_cannot_be_written_stops_the_start(tmp_path: Path, path: str) -> None:
    node = nsqd(tmp_path / "data", "-audit-file", str(tmp_path / path))
    with pytest.raises(AssertionError, match="failed to open --audit-file"):
        node.__enter__()
