"""`penstock cluster certs`: which files it makes, which it keeps, and what it refuses."""

import shlex
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import load_pem_x509_certificate

from admin.options import AdminOptions
from apps.certificate_authority import AUTHORITY_DAYS, LOCAL, Authority
from apps.nsq_tail import Options as TailOptions
from apps.penstock import main
from lookupd.options import LookupdOptions
from nsqd.options import NsqdOptions
from shared.configuration import parse
from shared.terminal.commands import CommandError
from shared.tls.certificates import Certificates, TlsFiles, describe
from shared.tls.client import load_client
from tests.cases import each

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NODE_0 = ["node-0-key.pem", "node-0.pem"]


def penstock(*arguments: str) -> int:
    return main(["cluster", "certs", *arguments])


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_files_are_made_and_a_second_run_adds_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "new" / "certs"
    assert penstock(str(directory), "--nodes", "1") == 0
    assert names(directory) == ["ca-key.pem", "ca.pem", *NODE_0]
    assert {path.stat().st_mode & 0o777 for path in directory.glob("*-key.pem")} == {0o600}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"created the certificate authority {directory / 'ca.pem'}"
    assert lines[1].startswith(f"created {directory / 'node-0.pem'}, which expires on 20")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert penstock(str(directory), "--nodes", "2", "--days", "5") == 0
    assert {name: (directory / name).read_bytes() for name in before} == before
    assert names(directory) == ["ca-key.pem", "ca.pem", *NODE_0, "node-1-key.pem", "node-1.pem"]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["kept", "kept", "created"]


def test_a_certificate_ends_after_so_many_days_and_not_after_its_authority(tmp_path: Path) -> None:
    assert Authority(tmp_path, 5, NOW).issue(0) == (True, NOW + timedelta(days=5))
    for name in ("ca.pem", "node-0.pem"):  # a slow clock accepts it
        assert load(tmp_path / name).not_valid_before_utc == NOW - timedelta(hours=1)
    late = Authority(tmp_path, 30, NOW + timedelta(days=AUTHORITY_DAYS - 1))
    assert late.issue(1) == (True, NOW + timedelta(days=AUTHORITY_DAYS))
    assert late.issue(0) == (False, NOW + timedelta(days=5))
    with pytest.raises(CommandError, match="expired on 2039-12-30"):
        Authority(tmp_path, 30, NOW + timedelta(days=AUTHORITY_DAYS))
    longer = Authority(tmp_path / "longer", AUTHORITY_DAYS + 9, NOW)
    assert longer.issue(0)[1] == NOW + timedelta(days=AUTHORITY_DAYS + 9)


@each("missing", ["ca.pem", "ca-key.pem", "node-0.pem", "node-0-key.pem"])
def test_half_a_pair_is_refused_and_nothing_is_overwritten(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert penstock(str(tmp_path), "--nodes", "1") == 0
    (tmp_path / missing).unlink()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert penstock(str(tmp_path), "--nodes", "2") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    error = capsys.readouterr().err
    assert error.startswith("penstock cluster certs: ")
    assert f"without {tmp_path / missing}; restore the missing file, or remove " in error


def test_files_of_another_authority_number_or_client_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        assert penstock(str(directory), "--nodes", "2", "--client", "ann") == 0
    for suffix in (".pem", "-key.pem"):
        (one / f"node-0{suffix}").write_bytes((other / f"node-0{suffix}").read_bytes())
        (one / f"node-2{suffix}").write_bytes((one / f"node-1{suffix}").read_bytes())
        (one / f"ben{suffix}").write_bytes((one / f"ann{suffix}").read_bytes())
    authority = Authority(one, 5)
    for number in (0, 2):
        with pytest.raises(CommandError, match=f"not a certificate of this authority for node {number}; remove it"):
            authority.issue(number)
    with pytest.raises(CommandError, match="for client ben; remove it"):
        authority.issue_client("ben")


@each("name", ["ca.pem", "ca-key.pem"])
def test_an_authority_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    Authority(own, 5)
    Authority(other, 5)
    (own / name).write_bytes((other / name).read_bytes())
    with pytest.raises(CommandError, match="is not the EC key of"):
        Authority(own, 5)
    (own / name).write_text("nothing")
    with pytest.raises(CommandError, match="cannot be read"):
        Authority(own, 5)


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert penstock(str(tmp_path / "file"), "--nodes", "1") == 1
    assert "penstock cluster certs: " in capsys.readouterr().err


@each("words", [
    ["--nodes", "0"], ["--nodes", "1025"], ["--nodes", "x"], ["--nodes", "1", "--days", "0"],
    *(["--client", name] for name in ("ca", "server", "node-1", "x-key", "a/b", ".hidden", "", "x" * 64)),
    *(["--host", host] for host in ("a:4150", "a b", "", "https://a", "a..b", "x" * 254)),
])  # fmt: skip
def test_wrong_arguments_end_with_code_2(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        penstock(str(tmp_path / "new"), *words)
    assert ended.value.code == 2
    assert not (tmp_path / "new").exists()


PORTS = [
    "ca-key.pem", "ca.pem", "client-key.pem", "client.pem", "nsqadmin-key.pem", "nsqadmin.pem", "server-key.pem", "server.pem"
]  # fmt: skip


def load(path: Path) -> x509.Certificate:
    return load_pem_x509_certificate(path.read_bytes())


def alternative_names(path: Path) -> list[str]:
    names = load(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(one.value) for one in names]


def test_one_command_makes_what_every_port_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock(str(tmp_path), "--host", "Box1.example", "--host", "10.0.0.5", "--host", "localhost") == 0
    assert names(tmp_path) == PORTS
    assert alternative_names(tmp_path / "server.pem") == ["localhost", "127.0.0.1", "::1", "box1.example", "10.0.0.5"]
    assert load(tmp_path / "client.pem").subject.rfc4514_string() == "CN=client"
    usages = {
        one: load(tmp_path / f"{one}.pem").extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        for one in ("server", "client")
    }
    assert {one: [usage._name for usage in found] for one, found in usages.items()} == {
        "server": ["serverAuth", "clientAuth"], "client": ["clientAuth"],
    }  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*-key.pem")} == {0o600}
    assert capsys.readouterr().out.splitlines()[1].startswith(f"created {tmp_path / 'server.pem'}, which expires on ")


def test_what_exists_is_kept_unless_it_lacks_a_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock(str(tmp_path), "--host", "a", "--host", "b") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert penstock(str(tmp_path), "--host", "a") == 0
    assert penstock(str(tmp_path), "--host", "c") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (error,) = capsys.readouterr().err.splitlines()
    assert (
        f"{tmp_path / 'server.pem'} is not a certificate of this authority for localhost, 127.0.0.1, ::1, c; remove it"
        in error
    )


def test_the_printed_flags_exist_in_the_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock(str(tmp_path), "--client", "ann") == 0
    printed = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    classes = {"nsqlookupd": LookupdOptions, "nsqd": NsqdOptions, "nsqadmin": AdminOptions, "nsq_tail": TailOptions}
    assert [words[0] for words in printed] == list(classes)
    for program, *words in printed:
        parse(classes[program], program, words, {})
    assert f"-consumer-opt=tls_cert,{tmp_path / 'ann.pem'}" in printed[3]


def test_the_daemons_accept_the_files_and_each_other(tmp_path: Path) -> None:
    assert penstock(str(tmp_path), "--client", "ann") == 0
    server, admin, ann, trusted = (str(tmp_path / name) for name in ("server", "nsqadmin", "ann", "ca.pem"))
    subjects = {server: "CN=penstock server", admin: "CN=penstock nsqadmin", ann: "CN=ann"}
    certificates = Certificates(TlsFiles(f"{server}.pem", f"{server}-key.pem", "require-verify", trusted))
    for name, subject in subjects.items():
        client = load_client(trusted, f"{name}.pem", f"{name}-key.pem")
        for host in LOCAL:
            there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
            dialing, accepting = client.wrap_bio(back, there, server_hostname=host), certificates.wrap(there, back)
            for side in (dialing, accepting, dialing, accepting):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
            assert describe(accepting).subject == subject
