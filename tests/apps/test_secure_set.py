"""A set that `penstock up --secure` starts: its files, and the flags of its daemons."""

import stat
from pathlib import Path

import pytest
from cryptography import x509

from apps.daemon_set import Plan, welcome
from apps.secure_set import ROLES, CommandError, SecureSet
from shared.auth.auth_file import parse
from shared.auth.passwords import is_password
from shared.auth.tokens import digest
from shared.auth.verbs import Verb


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> SecureSet:
    made = SecureSet(tmp_path_factory.mktemp("set") / "secure")
    made.make(3)
    return made


def test_every_token_is_known_by_its_name_and_roles(files: SecureSet) -> None:
    known = parse(files.path("auth.toml").read_text())
    for name, roles in ROLES.items():
        identity = known.tokens[digest(files.path(f"{name}.token").read_bytes().strip())]
        assert (identity.name, identity.roles) == (name, roles)
    identity, hashed = known.users["admin"]
    assert is_password(hashed, files.path("admin.password").read_text().strip())
    assert identity.rights.may(Verb.ADMIN)


def test_only_nsqadmins_certificate_is_an_admin(files: SecureSet) -> None:
    known = parse(files.path("auth.toml").read_text())
    for path in files.directory.glob("*.pem"):
        if path.stem.endswith("-key"):
            continue
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        identity = known.of_certificate(certificate.subject.rfc4514_string(), [])
        assert (identity is not None and identity.rights.may(Verb.ADMIN)) is (path.name == "nsqadmin.pem"), path


def test_what_is_secret_is_for_its_owner_alone_and_kept(files: SecureSet) -> None:
    secret = [path for path in files.directory.iterdir() if path.suffix != ".pem" or path.stem.endswith("-key")]
    named = {"auth.toml", "app.token", "admin.password", "ca-key.pem", "node-2-key.pem"}
    assert named <= {path.name for path in secret}
    assert [path.name for path in secret if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    before = {path: path.read_bytes() for path in files.directory.iterdir()}
    files.make(3)
    assert {path: path.read_bytes() for path in files.directory.iterdir()} == before


def without(made: SecureSet, word: str) -> None:
    """Remove the entry with this word from the auth file."""
    path = made.path("auth.toml")
    path.write_text("\n\n".join(part for part in path.read_text().split("\n\n") if word not in part))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(CommandError, match=r"ca\.pem exists without"):
        SecureSet(tmp_path).make(1)
    made = SecureSet(tmp_path / "secure")
    made.make(1)
    without(made, '"nsqadmin"')
    with pytest.raises(CommandError, match="does not know nsqadmin's certificate: add these lines") as raised:
        made.make(1)
    lines = str(raised.value).partition("\n")[2]
    with made.path("auth.toml").open("a") as file:
        file.write(f"\n{lines}\n")
    made.make(1)
    without(made, '"node"\n')
    with pytest.raises(CommandError, match=r"node\.token is not in .*auth token create"):
        made.make(1)


def test_every_port_of_a_secure_set_wants_tls_and_a_token(files: SecureSet) -> None:
    daemons = Plan(Path("data"), 10, secure=files).daemons()
    for daemon in daemons:
        assert "-tls-required=true" in daemon.flags
        assert any(flag.startswith("-auth-file=") for flag in daemon.flags)
        assert not any(flag.startswith(("-beanstalk-address=", "-disque-address=")) for flag in daemon.flags)
        assert not daemon.cluster_port or any(flag.startswith("-cluster-tls-cert=") for flag in daemon.flags)
        assert daemon.name != "nsqadmin" or not any("auth-token" in flag for flag in daemon.flags)
    assert not files.path("nsqadmin.token").exists()
    ports = [port for daemon in daemons for port in daemon.ports]
    assert len(ports) == len(set(ports))


def test_the_output_shows_how_to_use_it_and_no_secret(files: SecureSet) -> None:
    said = welcome(Plan(Path("data"), secure=files).daemons(), None, files)
    for word in ("--cacert", "app.token", "admin.password", "auth_secret_file", "PENSTOCK_AUTH_TOKEN_FILE", "https://"):
        assert word in said
    for name in (*(f"{token}.token" for token in ROLES), "admin.password"):
        assert files.path(name).read_text().strip() not in said
