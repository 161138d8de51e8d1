"""The addresses and credentials that a command uses.

Each setting is a flag (--lookupd-http-address), an environment variable (PENSTOCK_LOOKUPD_HTTP_ADDRESS), or a key of a
context, in this order. Contexts are tables of one TOML file, contexts.toml in $XDG_CONFIG_HOME/penstock:

    current = "production"

    [contexts.production]
    lookupd_http_address = ["10.0.0.1:4161", "10.0.0.2:4161"]
    tls_root_ca_file = "/etc/penstock/ca.pem"
    auth_token_file = "/etc/penstock/admin.token"

Without any address, a command uses the current context, and without one the set that `penstock up` runs on this machine: it
notes its addresses in a file below $XDG_STATE_HOME/penstock, which has the same form. Addresses that are given never get the
credentials of the current context, only those of one that is named (--context, PENSTOCK_CONTEXT).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from shared.files import public_problem, replace_file, without_waiting
from shared.terminal.commands import CommandError, WrongArguments

MOST_BYTES = 1 << 20  # of a file of contexts
MOST_ADDRESSES = 1000  # of a context
LOOKUPD, NODE, JOBS = "127.0.0.1:4161", "127.0.0.1:4151", "127.0.0.1:11300"
START = "start a set with `penstock up`, or name yours: penstock context add NAME --lookupd-http-address HOST:PORT"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ADDRESS = re.compile(r"(https?://)?([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")


def start_advice(*addresses: str) -> str:
    """Return the remedy for daemons at these addresses that give no answer."""
    if {*addresses} <= {LOOKUPD, NODE, JOBS}:
        return START
    return "start it, or give another node as --nsqd-http-address: see penstock status"


def _setting(text: str, *, is_list: bool = False) -> Any:
    return field(default=() if is_list else "", metadata={"help": text})


@dataclass(frozen=True, slots=True)
class Context:
    """The addresses and credentials of one set of daemons. A field is named as its flag, and as its key in the file."""

    lookupd_http_address: tuple[str, ...] = _setting(
        "HTTP address of an nsqlookupd, which names the nodes", is_list=True
    )
    nsqd_http_address: tuple[str, ...] = _setting(
        "HTTP address of a node; one that gives no answer is reported", is_list=True
    )
    job_address: str = _setting("TCP address for clients of beanstalkd")
    alarm: tuple[str, ...] = _setting(
        "threshold of an alarm, RULE.NAME=VALUE, or RULE=off, as of nsqadmin", is_list=True
    )
    auth_token_file: str = _setting("file with the token to present")
    auth_token_command: str = _setting("command that prints the token, such as that of a keyring; no shell runs it")
    tls_root_ca_file: str = _setting("file with the certificate authority of the daemons: everything goes over TLS")
    tls_cert: str = _setting("file with the certificate to present")
    tls_key: str = _setting("file with its key")

    @property
    def has_address(self) -> bool:
        """Return True if it names a daemon."""
        return bool(self.lookupd_http_address or self.nsqd_http_address)

    @property
    def node(self) -> str:
        """The HTTP address of the node that a command for one node asks."""
        return self.nsqd_http_address[0] if self.nsqd_http_address else NODE


SETTINGS = {one.name: one for one in fields(Context)}
LISTS = tuple(name for name, one in SETTINGS.items() if one.default == ())
NODES = ("lookupd_http_address", "nsqd_http_address")
ADDRESSES = (*NODES, "job_address")
TOKEN = ("auth_token_file", "auth_token_command")
FILES = ("auth_token_file", "tls_root_ca_file", "tls_cert", "tls_key")
CREDENTIALS = (*TOKEN, "tls_root_ca_file", "tls_cert", "tls_key")


@dataclass(slots=True)
class Contexts:
    """The saved contexts, and the name of the current one ("": none)."""

    current: str = ""
    by_name: dict[str, Context] = field(default_factory=dict)

    def find(self, name: str) -> Context:
        """Return the context of this name. Raises CommandError if there is none."""
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise CommandError(f"context {name[:100]!r} was not found (known: {known}): see penstock context list")
        return self.by_name[name]


# Files


def contexts_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file of contexts."""
    return _home(environ, "XDG_CONFIG_HOME", ".config") / "penstock" / "contexts.toml"


def sets_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory in which each running `penstock up` has a file, named by its process."""
    return _home(environ, "XDG_STATE_HOME", ".local/state") / "penstock" / "sets"


def _home(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    return Path(environ.get(variable) or Path(environ.get("HOME") or os.path.expanduser("~"), below_home))


def read_contexts(path: Path) -> Contexts:
    """Read a file of contexts; a missing one has none. Raises CommandError if it is invalid, or others can read it."""
    try:
        with open(path, "rb", opener=without_waiting) as file:
            wrong = public_problem(os.fstat(file.fileno()))
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    if wrong or len(content) > MOST_BYTES:
        raise CommandError(f"{path}: {wrong or f'it has more than {MOST_BYTES} bytes'}")
    try:
        return _parsed(tomllib.loads(content.decode()))
    except ValueError as error:  # also of tomllib and of UTF-8
        raise CommandError(f"{path}: {error}") from None


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace a file of contexts; only its owner may read it. Raises CommandError."""
    lines = [f"current = {json.dumps(contexts.current)}"] if contexts.current else []
    for name, context in contexts.by_name.items():
        lines += ["", f"[contexts.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in given(context).items())]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, "\n".join([*lines, ""]).lstrip("\n").encode())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def given(context: Context) -> dict[str, Any]:
    """Return the settings of a context that are not empty, as JSON has them."""
    values = {name: getattr(context, name) for name in SETTINGS}
    return {name: list(value) if name in LISTS else value for name, value in values.items() if value}


def _parsed(data: dict[str, Any]) -> Contexts:
    """Return the contexts in a parsed file. Raises ValueError."""
    tables, current = data.get("contexts", {}), data.get("current", "")
    if unknown := data.keys() - {"contexts", "current"}:
        raise ValueError(f"unknown key {min(unknown)!r}")
    if not isinstance(tables, dict) or not isinstance(current, str):
        raise ValueError("expected current = NAME and tables [contexts.NAME]")
    found = {name: context_of(name, table) for name, table in tables.items()}
    return Contexts(current if current in found else "", found)


def context_of(name: str, table: object) -> Context:
    """Return the context of a table. Raises ValueError."""
    if NAME.fullmatch(name) is None or not isinstance(table, dict):
        raise ValueError(f"a context's name must be 1 to 64 letters, digits, - and _, not {name[:100]!r}")
    if unknown := table.keys() - SETTINGS.keys():
        raise ValueError(f"context {name}: unknown key {min(unknown)!r} (known: {', '.join(SETTINGS)})")
    values: dict[str, Any] = {}
    for key, value in table.items():
        texts = value if key in LISTS else [value]
        if not isinstance(texts, list) or len(texts) > MOST_ADDRESSES or not all(isinstance(one, str) for one in texts):
            raise ValueError(f"context {name}: {key} must be {'a list of texts' if key in LISTS else 'a text'}")
        values[key] = tuple(texts) if key in LISTS else value
    context = Context(**values)
    if wrong := problem_of(context):
        raise ValueError(f"context {name}: {wrong}")
    return context


def problem_of(context: Context) -> str:
    """Return the error in the addresses of a context, or ""."""
    for name in ADDRESSES:
        value = getattr(context, name)
        for address in value if name in NODES else filter(None, [value]):
            if _ADDRESS.fullmatch(address) is None or (name == "job_address" and "://" in address):
                return f"{name}: expected host:port, not {address[:100]!r}"
    return ""


# The set of `penstock up`


def local_set(environ: Mapping[str, str]) -> Context | None:
    """Return the set that `penstock up` runs on this machine; None if there is none. Raises CommandError for several."""
    found = []
    for path in sorted(sets_directory(environ).glob("[0-9]*.toml")):
        with suppress(CommandError):  # it cannot be read, or has just ended
            if _runs_penstock_up(path.stem) and (context := read_contexts(path).by_name.get("local")):
                found.append(context)
    if len(found) > 1:
        known = ", ".join((*one.lookupd_http_address, *one.nsqd_http_address)[0] for one in found)
        raise CommandError(f"{len(found)} sets of penstock up run here: give --lookupd-http-address, one of {known}")
    return found[0] if found else None


@contextmanager
def noted_set(environ: Mapping[str, str], context: Context) -> Iterator[None]:
    """Note the set that this process runs, so that commands find it, until the context manager is left.

    Without a directory of the user's own, commands do not find it. Files of processes that were killed are removed.
    """
    directory = sets_directory(environ)
    path = directory / f"{os.getpid()}.toml"
    try:
        for old in directory.glob("[0-9]*.toml"):
            if not _runs_penstock_up(old.stem):
                old.unlink(missing_ok=True)
        write_contexts(path, Contexts(by_name={"local": context}))
    except (OSError, CommandError):
        pass
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _runs_penstock_up(process: str) -> bool:
    """Return whether the process with this number is `penstock up`: a number may be that of another program by now."""
    try:
        return b"up" in Path("/proc", process, "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


# The command line


def add_context(parser: argparse.ArgumentParser, names: Iterable[str] = SETTINGS) -> None:
    """Add --context, and the flags of these settings."""
    group = parser.add_argument_group("addresses and credentials, by default those of the context")
    group.add_argument("--context", metavar="NAME", help="name of a saved context (default: $PENSTOCK_CONTEXT)")
    for name in names:
        add_setting(group, name)


def add_setting(group: argparse._ActionsContainer, name: str) -> None:
    """Add the flag of a setting."""
    metavar = "HOST:PORT" if name in ADDRESSES else _METAVARS.get(name, "FILE")
    action = "append" if name in LISTS else "store"
    many = ", may be given multiple times" if name in LISTS else ""
    text = f"{SETTINGS[name].metadata['help']} (default: ${variable(name)}{many})"
    group.add_argument(f"--{name.replace('_', '-')}", action=action, metavar=metavar, help=text)


_METAVARS = {"alarm": "RULE.NAME=VALUE", "auth_token_command": "COMMAND"}


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"PENSTOCK_{name.upper()}"


def resolve(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Context:
    """Return the addresses and credentials of a command: see the module. Raises CommandError."""
    flags, variables = _of_flags(arguments), _of_environment(environ)
    named = getattr(arguments, "context", None) or environ.get("PENSTOCK_CONTEXT", "")
    saved = read_contexts(contexts_file(environ)) if named or not (flags.has_address or variables.has_address) else None
    if saved is None:
        base = Context()
    elif named or saved.current:
        base = saved.find(named or saved.current)
    else:
        base = local_set(environ) or Context()
    found = _over(flags, _over(variables, base))
    if wrong := problem_of(found):
        raise WrongArguments(wrong)
    return found if found.has_address else replace(found, lookupd_http_address=(LOOKUPD,))


def _of_flags(arguments: argparse.Namespace) -> Context:
    """Return the settings in flags. One about a single node has a text in place of a list."""
    values: dict[str, Any] = {name: value for name in SETTINGS if (value := getattr(arguments, name, None))}
    lists = {
        name: (value,) if isinstance(value, str) else tuple(value) for name, value in values.items() if name in LISTS
    }
    return Context(**values | lists)


def _of_environment(environ: Mapping[str, str]) -> Context:
    values: dict[str, Any] = {name: environ[variable(name)] for name in SETTINGS if environ.get(variable(name))}
    lists = {name: tuple(filter(None, values[name].split(","))) for name in LISTS if name in values}
    return Context(**values | lists)


def _over(upper: Context, lower: Context) -> Context:
    """Return the settings of `upper`, and those of `lower` where it has none. Nodes, and the token, come from one of them."""
    values = {name: getattr(upper, name) or getattr(lower, name) for name in SETTINGS}
    for together in (NODES, TOKEN):
        if any(getattr(upper, name) for name in together):
            values |= {name: getattr(upper, name) for name in together}
    return Context(**values)
