"""Whose requests are answered, by what they say of their host, origin and site. No socket."""

from shared.http.errors import HttpError
from shared.http.hosts import Hosts
from tests.cases import each


def status(method: str = "GET", host: str = "localhost", **more: str) -> int:
    """The status of a refused request; 200: it is accepted."""
    headers = [(b"host", host.encode("latin-1"))]
    headers += [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in more.items()]
    try:
        Hosts(["node.example", ".inside.example"]).check({"method": method, "http_version": "1.1", "headers": headers})
    except HttpError as refused:
        return refused.status
    return 200


@each("status_code, hosts", [
    (200, ["localhost", "LOCALHOST:1", "127.0.0.1", "10.0.0.1:4151", "[::1]", "[::1]:4151", "[fe80::1%eth0]:1", "box", "a_b-c",
           "node.example", "node.example.:80", "x.inside.example"]),
    (403, ["evil.example", "evil.example:4151", "127.0.0.1.evil.example", "inside.example", "a..b"]),
    (400, ["localhost#@evil.com", "evil.com@localhost", "localhost/x", "localhost?x", "evil\xffcom", "[", "[::1", "a b",
           "a:b:c", "localhost\\evil.com", "localhost:1x", "%6cocalhost", "[::1]evil.com", "a,b"]),
])  # fmt: skip
def test_our_hosts_foreign_hosts_and_what_is_no_host(status_code: int, hosts: list[str]) -> None:
    for host in hosts:
        assert status(host=host) == status_code, host


@each("site", ["same-origin", "none"])
@each("method", ["GET", "POST", "PUT", "DELETE"])
def test_our_own_pages_may_do_everything(site: str, method: str) -> None:
    assert status(method, sec_fetch_site=site) == 200


@each("site", ["cross-site", "same-site", "anything"])
def test_another_sites_page_may_only_link(site: str) -> None:
    for method in ("GET", "HEAD"):
        assert status(method, sec_fetch_site=site, sec_fetch_mode="navigate", sec_fetch_dest="document") == 200
        assert status(method, sec_fetch_site=site, sec_fetch_mode="navigate") == 200
        assert status(method, sec_fetch_site=site, sec_fetch_mode="navigate", sec_fetch_dest="iframe") == 403
        assert status(method, sec_fetch_site=site, sec_fetch_mode="no-cors", sec_fetch_dest="image") == 403
        assert status(method, sec_fetch_site=site) == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert status(method, sec_fetch_site=site, sec_fetch_mode="navigate", sec_fetch_dest="document") == 403
        assert status(method, sec_fetch_site=site) == 403


def test_a_link_does_not_excuse_a_foreign_host_or_origin() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert status(host="evil.example", **link) == 403
    assert status(origin="http://evil.example", **link) == 403
