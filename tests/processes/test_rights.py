"""nsqlookupd with an auth file. The rights of each HTTP route of nsqd are in tests/nsqd/http/test_rights.py."""

from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.auth_files import bearer, token, write
from tests.daemons import Daemon, eventually, nsqd
from tests.declared_routes import LOOKUPD

pytestmark = pytest.mark.process

FLAGS = ("-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0", "-debug-routes")


def test_nsqlookupd_registers_only_nodes_with_that_right(tmp_path: Path) -> None:
    file, own = tmp_path / "auth.toml", tmp_path / "token"
    write(file, "node", "viewer", "admin", "orders")
    own.write_text(token("node") + "\n")
    own.chmod(0o600)
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd", "-auth-file", str(file)))
        flags = "-lookupd-tcp-address", lookupd.tcp
        stranger = stack.enter_context(nsqd(tmp_path / "stranger", *flags))
        node = stack.enter_context(nsqd(tmp_path / "node", *flags, "-auth-token-file", str(own)))
        for daemon in (stranger, node):
            httpx.post(f"http://{daemon.http}/topic/create?topic=orders").raise_for_status()
        url = f"http://{lookupd.http}"

        def found(name: str) -> list[int]:
            answer = httpx.get(f"{url}/lookup?topic=orders", headers=bearer(name))
            return [one["tcp_port"] for one in answer.json().get("producers", ())]

        eventually(lambda: found("orders") == [int(node.tcp.rpartition(":")[2])])
        stranger.wait_for_line("E_UNAUTHORIZED")
        for route in LOOKUPD.values():
            method, path = route.method, route.path
            assert (httpx.request(method, url + path).status_code == 401) is not route.need.is_open, route.key
            if method == "POST":
                assert httpx.post(f"{url}{path}?topic=t&channel=c&node=x", headers=bearer("viewer")).status_code == 403
        write(file, "viewer", "orders")
        eventually(lambda: found("orders") == [])
        assert token("node") not in lookupd.stderr + node.stderr
