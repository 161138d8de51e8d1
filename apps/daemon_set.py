"""The daemons that `penstock up` runs: their flags and ports, a check of the ports, and the text about the daemons."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from apps.secure_set import USER, SecureSet, hints
from penstock import launch
from shared.process.listen import Listener, ListenError, bind_shared, listen
from shared.terminal.context import Context

HOST = "127.0.0.1"
LOOKUPD_TCP, LOOKUPD_HTTP, LOOKUPD_HTTPS = 4160, 4161, 4162
NSQD_TCP, NSQD_HTTP, NSQD_HTTPS, CLUSTER, BEANSTALK, DISQUE = 4150, 4151, 4152, 4154, 11300, 7711
ADMIN_HTTP, ADMIN_HTTPS = 4171, 4172
# A machine that is used for other things, too, often has less than a fifth of its disk free.
ALARMS = ("disk-low.percent=5", "disk-low.critical=2")
MOST_SHOWN = 3  # nsqd in the summary
SECRET = "cluster.secret"  # file with the secret of the cluster, in the directory for the data of all daemons
NODE_STEP = 100  # difference between the ports of two nsqd: 4150, 4250, ...
DEBUG_ROUTES = "-debug-routes"  # flag of nsqd that serves what `penstock chaos` asks nodes for


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon to start: its program, flags and ports."""

    name: str
    program: str
    flags: tuple[str, ...]
    tcp_port: int  # 0: none
    http_port: int
    beanstalk_port: int = 0  # 0: none
    disque_port: int = 0  # 0: none
    shared_port: int = 0  # where all nsqd take producers; 0: none
    cluster_port: int = 0  # 0: the node is in no cluster
    https_port: int = 0  # 0: none

    @property
    def is_node(self) -> bool:
        """Return True if it is an nsqd."""
        return self.program == "nsqd"

    @property
    def ports(self) -> list[int]:
        """The ports that it has for itself."""
        own = (self.tcp_port, self.http_port, self.https_port, self.beanstalk_port, self.disque_port, self.cluster_port)
        return [port for port in own if port]

    @property
    def url(self) -> str:
        """The URL of its HTTP, or of its HTTPS if it has that."""
        return f"https://{HOST}:{self.https_port}" if self.https_port else f"http://{HOST}:{self.http_port}"

    @property
    def command(self) -> list[str]:
        """The command line to execute. -P keeps Python from importing modules next to launch.py or in the working directory."""
        return [sys.executable, "-P", launch.__file__, self.program, *self.flags]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which daemons `penstock up` runs, and how they are reached."""

    data: Path  # directory for the data of all daemons
    nodes: int = 1
    port_offset: int = 0  # added to every port but the shared one
    shared_port: int = 0  # where all nsqd take producers; 0: none
    options: Sequence[str] = ()  # further flags of every nsqd
    secure: SecureSet | None = None  # certificates and tokens; None: no TLS, and no restrictions

    def daemons(self) -> list[Daemon]:
        """Return the daemons to run, in the order in which they start: nsqlookupd, the nsqd, nsqadmin."""
        return [self._lookupd(), *map(self._node, range(self.nodes)), self._admin()]

    def _at(self, port: int, number: int = 0) -> int:
        """Return the port of node `number` for the one that the first node has without an offset."""
        return port + number * NODE_STEP + self.port_offset

    def _lookupd(self) -> Daemon:
        tcp, http, https = self._at(LOOKUPD_TCP), self._at(LOOKUPD_HTTP), self._at(LOOKUPD_HTTPS) if self.secure else 0
        flags = [f"-tcp-address={HOST}:{tcp}", f"-http-address={HOST}:{http}"]
        flags += self.secure.lookupd_flags(f"{HOST}:{https}") if self.secure else []
        return Daemon("nsqlookupd", "nsqlookupd", tuple(flags), tcp, http, https_port=https)

    def _admin(self) -> Daemon:
        http, https = self._at(ADMIN_HTTP), self._at(ADMIN_HTTPS) if self.secure else 0
        flags = [f"-http-address={HOST}:{http}", f"-audit-file={self.data / 'audit.jsonl'}"]
        lookupd = f"https://{HOST}:{self._at(LOOKUPD_HTTPS)}" if self.secure else f"{HOST}:{self._at(LOOKUPD_HTTP)}"
        flags += [f"-state-dir={self.data / 'nsqadmin'}", f"-lookupd-http-address={lookupd}"]
        flags += [f"-alarm={one}" for one in ALARMS]
        flags += self.secure.admin_flags(f"{HOST}:{https}") if self.secure else []
        return Daemon("nsqadmin", "nsqadmin", tuple(flags), 0, http, https_port=https)

    def _node(self, number: int) -> Daemon:
        # the first one keeps its directory when the number of nodes changes
        name = f"nsqd-{number + 1}" if number else "nsqd"
        bases = (NSQD_TCP, NSQD_HTTP, BEANSTALK, DISQUE)
        tcp, http, beanstalk, disque = (self._at(base, number) for base in bases)
        cluster = [self._at(CLUSTER, each) for each in range(self.nodes)] if self.nodes > 1 else []
        own = cluster[number] if cluster else 0
        tls = "tls-" if self.secure is not None else ""  # these protocols have a port for it
        flags = [
            f"-tcp-address={HOST}:{tcp}",
            f"-http-address={HOST}:{http}",
            f"-beanstalk-{tls}address={HOST}:{beanstalk}",
            f"-disque-{tls}address={HOST}:{disque}",
            f"-lookupd-tcp-address={HOST}:{self._at(LOOKUPD_TCP)}",
            f"-data-path={self.data / name}",
            f"-node-id={number}",
            f"-log-prefix=[{name}] ",
        ]
        if self.shared_port:
            flags.append(f"-tcp-shared-address={HOST}:{self.shared_port}")
        if cluster:
            flags += [f"-cluster-address={HOST}:{own}", f"-cluster-secret-file={self.data / SECRET}"]
            flags += [f"-cluster-peer={HOST}:{port}" for port in cluster if port != own]
        https = 0
        if self.secure is not None:
            https = self._at(NSQD_HTTPS, number)
            flags += self.secure.node_flags(f"{HOST}:{https}", number, bool(cluster))
        ports = tcp, http, beanstalk, disque, self.shared_port, own, https
        return Daemon(name, "nsqd", (*flags, *self.options), *ports)


def port_problems(daemons: Sequence[Daemon]) -> list[str]:
    """Return a line for each port that cannot be had."""
    problems = []
    own = {port for daemon in daemons for port in daemon.ports}
    for daemon in daemons:
        for port in daemon.ports:
            problems += _problem(daemon.name, port, listen)
    shared = daemons[1].shared_port
    if shared in own - {0}:
        problems.append(f"penstock up: --shared-port {shared} is also the port of one daemon alone")
    elif shared:
        problems += _problem("--shared-port", shared, bind_shared)
    return problems


def _problem(whose: str, port: int, bind: Callable[[str], Listener]) -> list[str]:
    try:
        bind(f"{HOST}:{port}").close()
    except ListenError as error:
        return [f"penstock up: {whose}: {error}"]
    return []


def context_of(daemons: Sequence[Daemon], secure: SecureSet | None) -> Context:
    """Return the addresses and credentials by which commands find the set."""
    lookupd, *nodes = daemons[:-1]
    context = Context(
        lookupd_http_address=(lookupd.url.removeprefix("http://"),),
        nsqd_http_address=tuple(node.url.removeprefix("http://") for node in nodes),
        alarm=ALARMS,
    )
    if secure is None:
        return replace(context, job_address=f"{HOST}:{nodes[0].beanstalk_port}")
    ca, token = (str(secure.path(file).absolute()) for file in ("ca.pem", "admin.token"))
    return replace(context, tls_root_ca_file=ca, auth_token_file=token)


def welcome(
    daemons: Sequence[Daemon], chaos_in: Path | None = None, secure: SecureSet | None = None, logs: Path | None = None
) -> str:
    """Return the text that is printed once all daemons run: some ten lines.

    `chaos_in`: the set's data, if `penstock chaos` is allowed. `logs`: the directory with the logs, if they are not printed.
    """
    lookupd, *nodes, admin = daemons
    shown = [lookupd, *nodes[:MOST_SHOWN], admin]
    width = max(len(daemon.name) for daemon in shown)
    lines = [
        f"{d.name:<{width}}  "
        + (f"TCP {HOST}:{d.tcp_port}  " if d.tcp_port else "")
        + f"{'HTTPS' if d.https_port else 'HTTP'} {d.url}"
        + (f"  beanstalkd {HOST}:{d.beanstalk_port}" if d.beanstalk_port else "")
        + (f"  Disque {HOST}:{d.disque_port}" if d.disque_port else "")
        for d in shown
    ]
    node, program = nodes[0], _beside("penstock")
    if len(nodes) > MOST_SHOWN:
        lines.insert(-1, f"... and {len(nodes) - MOST_SHOWN} more nsqd: {program} nodes")
    if node.shared_port:
        lines.append(f"producers of any nsqd: TCP {HOST}:{node.shared_port}")
    where = "" if chaos_in == Path("data") else f" --data {shlex.quote(str(chaos_in))}"
    tries = [
        f"Try:  {program} pub greetings hello; {program} sub greetings tail -n 1",
        f"Look:  {program} status; {program} top",
    ]
    if secure is not None:
        tries = hints(secure, f"{HOST}:{node.https_port}", f"{HOST}:{lookupd.https_port}", _beside)
    user = f", user {USER}, password in {secure.path(f'{USER}.password')}" if secure is not None else ""
    lines += [
        *tries,
        *([f"Break a node:  {program} chaos freeze 0 --for 30s{where}"] if chaos_in is not None else []),
        *([f"Logs:  {logs} (--logs prints them here)"] if logs is not None else []),
        f"Web UI:  {admin.url}{user}",
        "Press Ctrl-C to stop all daemons.",
    ]
    return "\n".join(lines)


def _beside(program: str) -> str:
    """Return the path of a console script of this installation, relative to the working directory if possible."""
    path = Path(sys.executable).parent / program
    if not path.exists():
        return program
    return shlex.quote(str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path))
