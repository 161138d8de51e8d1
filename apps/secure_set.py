"""The files that `penstock up --secure DIR` makes before the daemons start, unless they exist.

    ca.pem, client.pem, node-<number>.pem                  certificates, each with its key in <name>-key.pem
    nsqlookupd.pem, nsqd-<number>.pem, nsqadmin.pem        of each daemon; nsqadmin shows its own to the others
    auth.toml                                              the rights of tokens; `penstock auth` changes it
    app.token, app.header                                  for producers and consumers; the header is for curl -H @FILE
    admin.token, admin.header                              for operators and commands
    node.token                                             of the nsqd themselves
    admin.password                                         of the user admin of nsqadmin

Only their owner may read the keys, the tokens and the password.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared.auth.auth_file import AuthFileError, parse
from shared.auth.edit import changed
from shared.auth.tokens import digest, new_token
from shared.auth.verbs import Verb
from shared.files import replace_file
from shared.terminal.commands import CommandError

DAYS = 825  # how long certificates are valid; some clients refuse more
ROLES = {  # of each token
    "app": ("producer", "consumer"),
    "admin": ("admin",),
    "node": ("node",),
}
FOR_CURL = ("app", "admin")
USER = "admin"  # of nsqadmin
NSQADMIN = "CN=penstock nsqadmin"  # subject of its certificate, by which it authenticates to the other daemons


@dataclass(frozen=True, slots=True)
class SecureSet:
    """The files of a set that speaks TLS on every port, and serves only clients that authenticate."""

    directory: Path

    def path(self, name: str) -> Path:
        """Return the path of a file, such as "ca.pem" or "app.token"."""
        return self.directory / name

    def make(self, nodes: int) -> None:
        """Make the missing files. Raises OSError, and CommandError if a file cannot be used."""
        from apps.certificate_authority import Authority  # it imports `cryptography`

        authority = Authority(self.directory, DAYS)
        for name in ("nsqlookupd", *(f"nsqd-{number}" for number in range(nodes)), "nsqadmin"):
            authority.issue_server((), name)
        authority.issue_client("client")
        for number in range(nodes) if nodes > 1 else ():
            authority.issue(number)
        if not self.path("auth.toml").exists():
            self._make_auth_file()
        self._check_credentials()

    def _check_credentials(self) -> None:
        """Raise CommandError if the auth file does not know a token or nsqadmin's certificate, as after it was revoked."""
        try:
            file = parse(self.path("auth.toml").read_text(encoding="utf-8"))
        except AuthFileError as error:
            raise CommandError(f"{self.path('auth.toml')}: {error}") from None
        for name in ROLES:
            path = self.path(f"{name}.token")
            if digest(path.read_bytes().strip()) not in file.tokens:
                raise CommandError(
                    f"{path} is not in {self.path('auth.toml')}: make one with `penstock auth token create"
                    f" {self.path('auth.toml')} {name} --role {ROLES[name][0]}`, or choose another directory"
                )
        admin = file.of_certificate(NSQADMIN, [])
        if admin is None or not admin.rights.may(Verb.ADMIN):
            raise CommandError(
                f"{self.path('auth.toml')} does not know nsqadmin's certificate: add these lines, or choose another directory\n"
                f'[[certificate]]\nname = "nsqadmin"\nsubject = "{NSQADMIN}"\nroles = ["admin"]'
            )

    def _make_auth_file(self) -> None:
        from argon2 import PasswordHasher

        text = ""
        for name, roles in ROLES.items():
            token = new_token(secrets.token_urlsafe)
            replace_file(self.path(f"{name}.token"), token.encode() + b"\n")
            if name in FOR_CURL:  # on curl's command line every user of the machine could read the token
                replace_file(self.path(f"{name}.header"), b"Authorization: Bearer %s\n" % token.encode())
            text = changed(text, "token", name, {"sha256": digest(token.encode()), "roles": roles})
        password = secrets.token_urlsafe(12)
        replace_file(self.path(f"{USER}.password"), password.encode() + b"\n")
        text = changed(text, "user", USER, {"password": PasswordHasher().hash(password), "roles": ["admin"]})
        text = changed(text, "certificate", "nsqadmin", {"subject": NSQADMIN, "roles": ["admin"]})
        replace_file(self.path("auth.toml"), text.encode())

    def lookupd_flags(self, https: str) -> list[str]:
        """Return the flags of nsqlookupd. `https`: the address of its HTTPS."""
        return self._serving_flags("nsqlookupd", https)

    def node_flags(self, https: str, number: int, in_cluster: bool) -> list[str]:
        """Return the flags of an nsqd. `https`: the address of its HTTPS."""
        own = {"auth-token-file": "node.token", "lookupd-tls-root-ca-file": "ca.pem"}
        if in_cluster:
            own |= {"cluster-tls-cert": f"node-{number}.pem", "cluster-tls-key": f"node-{number}-key.pem"}
            own["cluster-tls-ca"] = "ca.pem"
        return [*self._serving_flags(f"nsqd-{number}", https), *self._flags(own)]

    def admin_flags(self, https: str) -> list[str]:
        """Return the flags of nsqadmin. `https`: the address of its HTTPS."""
        client = {"root-ca-file": "ca.pem", "cert": "nsqadmin.pem", "key": "nsqadmin-key.pem"}
        own = self._flags({f"http-client-tls-{name}": file for name, file in client.items()})
        return [*self._server_flags("nsqadmin", https), *own, "-nsqd-https"]

    def _serving_flags(self, name: str, https: str) -> list[str]:
        """Return the flags of a daemon that authenticates others by their certificates."""
        trusted = self._flags({"tls-root-ca-file": "ca.pem"})
        return [*self._server_flags(name, https), *trusted, "-tls-client-auth-policy=verify-if-given", "-metrics-auth"]

    def _server_flags(self, name: str, https: str) -> list[str]:
        files = {"tls-cert": f"{name}.pem", "tls-key": f"{name}-key.pem", "auth-file": "auth.toml"}
        return [f"-https-address={https}", "-tls-required=true", *self._flags(files)]

    def _flags(self, files: dict[str, str]) -> list[str]:
        return [f"-{name}={self.path(file)}" for name, file in files.items()]

    def context(self) -> ssl.SSLContext:
        """Return the authority that connections to the daemons trust. Raises OSError."""
        return ssl.create_default_context(cafile=str(self.path("ca.pem")))

    def headers(self) -> dict[str, str]:
        """Return the headers of the requests of `penstock up` itself. Raises OSError."""
        return {"Authorization": f"Bearer {self.path('node.token').read_text(encoding='utf-8').strip()}"}


def hints(files: SecureSet, node_https: str, lookupd_https: str, program: Callable[[str], str]) -> list[str]:
    """Return the lines about the use of a set. `program`: the path of a console script by its name."""
    ca, token = files.path("ca.pem"), files.path("app.token")
    options = f"-consumer-opt=tls_v1 -consumer-opt=tls_root_ca_file,{ca} -consumer-opt=auth_secret_file,{token}"
    tail = f"{program('nsq_tail')} -topic greetings -channel tail -n 1"
    return [
        f"Every port requires TLS, and a token of {files.path('auth.toml')}: see docs/reference/security.md.",
        "",
        f"Try:  curl --cacert {ca} -H @{files.path('app.header')} -d 'hello' 'https://{node_https}/pub?topic=greetings'",
        f"      {tail} -lookupd-http-address https://{lookupd_https} {options}",
        f"Commands:  export PENSTOCK_TLS_ROOT_CA_FILE={ca} PENSTOCK_AUTH_TOKEN_FILE={files.path('admin.token')}",
        f"      {program('penstock')} auth token create {files.path('auth.toml')} NAME --role producer",
    ]
