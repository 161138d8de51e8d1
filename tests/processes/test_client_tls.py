"""The programs of the client against an nsqd that wants TLS, a certificate and AUTH."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from penstock.client import Settings
from tests.auth_server import AuthServer, allowing, says
from tests.certificates import Authority
from tests.daemons import Daemon, nsqd, run

pytestmark = pytest.mark.process

ALLOWED = says(200, allowing())


@dataclass(frozen=True)
class Guarded:
    """An nsqd that requires a certificate and a secret, and the files with both."""

    node: Daemon
    auth: AuthServer
    root: str  # files
    cert: str
    key: str

    def settings(self, **more: str | bool | int) -> Settings:
        """All that is needed, except for what `more` says otherwise."""
        needed = {"tls_v1": True, "tls_root_ca_file": self.root, "tls_cert": self.cert, "tls_key": self.key}
        return Settings(**{**needed, "auth_secret": "secret", **more})  # type: ignore[arg-type]

    def words(self, flag: str, *left_out: str) -> list[str]:
        """Return the same settings as flags of a program."""
        words = ["tls_v1", f"tls_root_ca_file,{self.root}", f"tls_cert,{self.cert}", f"tls_key,{self.key}"]
        words += ["auth_secret,secret", "snappy,true"]
        return [f"-{flag}={word}" for word in words if word.partition(",")[0] not in left_out]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    path = tmp_path_factory.mktemp("guarded")
    authority = Authority(path)
    leaf = authority.issue("client")
    (path / "client.pem").write_bytes(leaf.cert_chain_pems[0].bytes())
    leaf.private_key_pem.write_to_path(str(path / "client-key.pem"))
    with ExitStack() as stack:
        auth = stack.enter_context(AuthServer(ALLOWED))
        flags = [*authority.flags(), "-https-address=127.0.0.1:0", "-auth-http-address", auth.address]
        flags += ["-tls-client-auth-policy", "require-verify", "-tls-root-ca-file", authority.root]
        node = stack.enter_context(nsqd(path / "data", *flags, listens=("TCP",)))
        yield Guarded(node, auth, authority.root, str(path / "client.pem"), str(path / "client-key.pem"))


def test_the_programs_with_tls_snappy_and_auth(guarded: Guarded) -> None:
    where = ["-topic=programs", f"-nsqd-tcp-address={guarded.node.tcp}"]
    published = run("to_nsq", *where, *guarded.words("producer-opt"), stdin="one\ntwo\n")
    assert (published.returncode, published.stderr) == (0, "")
    tailed = run("nsq_tail", *where, *guarded.words("consumer-opt"), "-channel=c", "-n=2")
    assert (tailed.returncode, tailed.stdout) == (0, "one\ntwo\n")


@pytest.mark.parametrize(
    ("left_out", "text"),
    [
        (["tls_v1"], "E_INVALID cannot AUTH in current state (TLS required)"),
        (["tls_cert", "tls_key"], "TLS: tlsv13 alert certificate required"),
        (["tls_root_ca_file"], "the server's certificate: self-signed certificate in certificate chain"),
        (["auth_secret"], "E_AUTH_FIRST AUTH required before PUB"),
    ],
)
def test_a_refused_client_learns_why(guarded: Guarded, left_out: list[str], text: str) -> None:
    where = ["-topic=refused", f"-nsqd-tcp-address={guarded.node.tcp}"]
    refused = run("to_nsq", *where, *guarded.words("producer-opt", *left_out), stdin="one\n")
    assert refused.returncode == 1
    assert f"to_nsq: {guarded.node.tcp}: {text}\n" in refused.stderr
