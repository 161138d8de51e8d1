"""The daemons that `penstock up` runs: their flags and ports, whether the ports are free, and the text that tells of them."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock import launch
from shared.listen import Listener, ListenError, bind_shared, listen

HOST = "127.0.0.1"
LOOKUPD_TCP, LOOKUPD_HTTP = 4160, 4161
NSQD_TCP, NSQD_HTTP, CLUSTER, BEANSTALK, DISQUE = 4150, 4151, 4154, 11300, 7711
ADMIN_HTTP = 4171
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

    @property
    def is_node(self) -> bool:
        """Return True if it is an nsqd."""
        return self.program == "nsqd"

    @property
    def ports(self) -> list[int]:
        """The ports that it has for itself."""
        own = (self.tcp_port, self.http_port, self.beanstalk_port, self.disque_port, self.cluster_port)
        return [port for port in own if port]

    @property
    def command(self) -> list[str]:
        """The command line to execute. -P keeps Python from importing modules beside launch.py or in the working directory."""
        return [sys.executable, "-P", launch.__file__, self.program, *self.flags]


def plan(data: Path, nodes: int, port_offset: int, shared_port: int = 0, options: Sequence[str] = ()) -> list[Daemon]:
    """Return the daemons to run, in the order in which they start: nsqlookupd, the nsqd, nsqadmin.

    `options`: further flags of every nsqd.
    """
    lookupd_tcp, lookupd_http = LOOKUPD_TCP + port_offset, LOOKUPD_HTTP + port_offset
    addresses = (f"-tcp-address={HOST}:{lookupd_tcp}", f"-http-address={HOST}:{lookupd_http}")
    lookupd = Daemon("nsqlookupd", "nsqlookupd", addresses, lookupd_tcp, lookupd_http)
    admin = (
        f"-http-address={HOST}:{ADMIN_HTTP + port_offset}",
        f"-lookupd-http-address={HOST}:{lookupd_http}",
        f"-audit-file={data / 'audit.jsonl'}",
    )
    return [
        lookupd,
        *(_node(data, number, port_offset, lookupd_tcp, shared_port, nodes, options) for number in range(nodes)),
        Daemon("nsqadmin", "nsqadmin", admin, 0, ADMIN_HTTP + port_offset),
    ]


def _node(
    data: Path, number: int, port_offset: int, lookupd_tcp: int, shared_port: int, nodes: int, options: Sequence[str]
) -> Daemon:
    name = (
        f"nsqd-{number + 1}" if number else "nsqd"
    )  # the first one keeps its directory when the number of nodes changes
    bases = (NSQD_TCP, NSQD_HTTP, BEANSTALK, DISQUE)
    tcp, http, beanstalk, disque = (base + number * NODE_STEP + port_offset for base in bases)
    flags = [
        f"-tcp-address={HOST}:{tcp}",
        f"-http-address={HOST}:{http}",
        f"-beanstalk-address={HOST}:{beanstalk}",
        f"-disque-address={HOST}:{disque}",
        f"-lookupd-tcp-address={HOST}:{lookupd_tcp}",
        f"-data-path={data / name}",
        f"-node-id={number}",
        f"-log-prefix=[{name}] ",
    ]
    if shared_port:
        flags.append(f"-tcp-shared-address={HOST}:{shared_port}")
    cluster = [CLUSTER + each * NODE_STEP + port_offset for each in range(nodes)] if nodes > 1 else []
    if cluster:
        flags += [f"-cluster-address={HOST}:{cluster[number]}", f"-cluster-secret-file={data / SECRET}"]
        flags += [f"-cluster-peer={HOST}:{port}" for port in cluster if port != cluster[number]]
    own = cluster[number] if cluster else 0
    return Daemon(name, "nsqd", (*flags, *options), tcp, http, beanstalk, disque, shared_port, own)


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


def welcome(daemons: Sequence[Daemon], chaos_in: Path | None = None) -> str:
    """Return what the user is told once all daemons run. `chaos_in`: the set's data, if `penstock chaos` is allowed."""
    width = max(len(daemon.name) for daemon in daemons)
    lines = [
        f"{d.name:<{width}}  "
        + (f"TCP {HOST}:{d.tcp_port}  " if d.tcp_port else "")
        + f"HTTP http://{HOST}:{d.http_port}"
        + (f"  beanstalkd {HOST}:{d.beanstalk_port}" if d.beanstalk_port else "")
        + (f"  Disque {HOST}:{d.disque_port}" if d.disque_port else "")
        for d in daemons
    ]
    node, lookupd = daemons[1], f"{HOST}:{daemons[0].http_port}"
    if node.shared_port:
        lines.append(f"producers of any nsqd: TCP {HOST}:{node.shared_port}")
    where = "" if chaos_in == Path("data") else f" --data {shlex.quote(str(chaos_in))}"
    lines += [
        "",
        f"Try:  curl -d 'hello' 'http://{HOST}:{node.http_port}/pub?topic=greetings'",
        f"      {_beside('nsq_tail')} -topic greetings -channel tail -n 1 -lookupd-http-address {lookupd}",
        *([f"Break a node:  {_beside('penstock')} chaos freeze 0 --for 30s{where}"] if chaos_in is not None else []),
        f"Web UI:  http://{HOST}:{daemons[-1].http_port}",
        "Press Ctrl-C to stop all daemons.",
    ]
    return "\n".join(lines)


def _beside(program: str) -> str:
    """Return the path of a console script of this installation, relative to the working directory if possible."""
    path = Path(sys.executable).parent / program
    if not path.exists():
        return program
    return shlex.quote(str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path))
