"""`penstock up`: run nsqlookupd, nsqd and nsqadmin in the foreground, and carry out the decisions of the supervisor.

The daemons are ordinary processes with ordinary flags (-v prints their command lines), each in its own session, so Ctrl-C
reaches this program alone. SIGTERM, SIGINT and SIGHUP (the terminal is gone) stop them in the reverse order of their start, a
second SIGINT kills them, SIGUSR1 starts those that died, and SIGUSR2 restarts the nodes one by one.
"""

import argparse
import http.client
import json
import os
import random
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from apps.control import Control, Request
from apps.daemon_logs import DaemonLogs
from apps.daemon_set import DEBUG_ROUTES, HOST, SECRET, Daemon, Plan, context_of, port_problems, welcome
from apps.interrupts import STOPS, SignalQueue
from apps.secure_set import SecureSet
from apps.supervisor import NEVER, Action, RefusedError, Say, Send, Start, State, Supervised, Supervisor
from shared.files import replace_file
from shared.lossy_stream import RETRY, describe_loss, is_behind, make_lossy
from shared.terminal.commands import CommandError, Commands, make_command, whole_number
from shared.terminal.context import noted_set
from shared.values import SECOND

POLL = 0.05  # s between two requests to daemons that start
RESPONSE_TIMEOUT = 1.0  # s
IGNORANT = b"NOK - NOREPL"  # response of a node that has not received the configurations of topics yet
LONGEST_WAIT = 60.0  # s; signals end a wait, also those of children that ended
# options of nsqd that the plan of the set gives
OWN_OPTIONS = {flag[1:].partition("=")[0] for flag in Plan(Path(), nodes=2, shared_port=1).daemons()[1].flags}
ADVICE = (
    "penstock up: choose other ports with --port-offset, for example --port-offset 1000;"
    " to run a second set, also choose another --data directory"
)

DETAILS = """
If a daemon dies, the others continue. A line says how it ended, and how to start it again: SIGUSR1 to penstock up starts
each daemon that died, under its addresses and with its data. If the only nsqd of a set dies and --restart is not given, all
daemons are stopped. SIGUSR2 restarts the nodes one by one. Ctrl-C stops all daemons, and a second Ctrl-C kills them.
Exit code: 0 if every daemon that was not killed on purpose stopped cleanly, otherwise 1. See docs/how-to/run-several-nodes.md.
"""


def run(arguments: argparse.Namespace) -> int:
    """Run the daemons until a signal or a failure, and return the exit code. Raises CommandError if none can start.

    The code is 0 if the user ended it and every daemon stopped cleanly, and 1 if a daemon could not start, is down in the end
    because it died, or had to be killed.
    """
    for name in ("stdout", "stderr"):  # this program must not wait for a terminal: it watches the daemons
        make_lossy(name, lambda lines: f"penstock up: {describe_loss(lines)}\n")
    options = [*arguments.set, *([DEBUG_ROUTES] if arguments.chaos else [])]
    secure = SecureSet(arguments.secure) if arguments.secure is not None else None
    if secure is not None and arguments.chaos:
        raise CommandError("--chaos works on sets without --secure only")
    plan = Plan(arguments.data, arguments.nodes, arguments.port_offset, arguments.shared_port, options, secure)
    daemons = plan.daemons()
    if problems := port_problems(daemons):
        print("\n".join([*problems, ADVICE]), file=sys.stderr)
        return 1
    try:
        make_secret(arguments.data, daemons)
        if secure is not None:
            secure.make(arguments.nodes)
        client = Client(secure)
    except (OSError, CommandError) as error:
        raise CommandError(f"cannot make the secrets of the set: {error}") from None
    supervisor = Supervisor(
        [Supervised(daemon.name, daemon.is_node) for daemon in daemons],
        arguments.restart,
        random.Random().random,
        f"kill -USR1 {os.getpid()}",
    )
    logs = DaemonLogs(None if arguments.logs else arguments.data / "logs")
    with (
        SignalQueue() as signals,
        Control(arguments.data, signals.wake) as control,
        noted_set(os.environ, context_of(daemons, secure)),
        Processes(
            daemons, supervisor, arguments.verbose, control if arguments.chaos else None, client, logs
        ) as processes,
    ):
        return processes.run(signals)


def make_secret(data: Path, daemons: Sequence[Daemon]) -> None:
    """Make the secret that the nodes share, if they form a cluster and there is none yet. Raises OSError."""
    path = data / SECRET
    if any(daemon.cluster_port for daemon in daemons) and not path.exists():
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, secrets.token_hex(32).encode() + b"\n")


class Processes:
    """The daemons' processes. Leaving the context ends those that still run after an error of this program."""

    def __init__(
        self,
        daemons: Sequence[Daemon],
        supervisor: Supervisor,
        verbose: bool,
        control: Control | None,
        client: "Client",
        logs: DaemonLogs,
    ) -> None:
        """`control`: the port for `penstock chaos`; None: it is not allowed."""
        self._logs = logs
        self._control = control
        self._daemons = {daemon.name: daemon for daemon in daemons}
        self._lookupd, self._client = daemons[0], client
        self._supervisor = supervisor
        self._verbose = verbose
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._not_started: list[str] = []  # daemons whose process could not be made
        self._interrupts = 0

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()

    def run(self, signals: SignalQueue) -> int:
        """Run until nothing is left to do, and return the exit code."""
        supervisor = self._supervisor
        self._carry_out(supervisor.begin(time.monotonic_ns()))
        while not supervisor.is_over:
            for number in signals.wait(self._longest_wait()):
                self._handle_signal(number)
            for name, code in self._fetch_ended():
                self._carry_out(supervisor.ended(name, code, time.monotonic_ns()))
            for name in supervisor.starting():
                if self._answers(self._daemons[name]):
                    self._carry_out(supervisor.answered(name, time.monotonic_ns()))
            self._carry_out(supervisor.tick(time.monotonic_ns()))
            for stream in (sys.stdout, sys.stderr):
                stream.flush()  # the number of lines that a stuck terminal did not take
            for request in self._control.requests() if self._control is not None else ():
                request.responses.put(self._response(request))
        return supervisor.exit_code

    def _fetch_ended(self) -> list[tuple[str, int]]:
        """Return the daemons that have ended since the last call, with their exit codes."""
        ended = [(name, 1) for name in self._not_started]
        self._not_started.clear()
        ended += [(name, code) for name, process in self._running.items() if (code := process.poll()) is not None]
        for name, code in ended:
            self._running.pop(name, None)
            if code > 0:  # it ended by itself
                print("".join(self._logs.describe_end(name)), end="", file=sys.stderr, flush=True)
        return ended

    def _longest_wait(self) -> float:
        if self._supervisor.starting():
            return POLL
        if is_behind(sys.stdout, sys.stderr):
            return RETRY
        return min(LONGEST_WAIT, max(0.0, (self._supervisor.due() - time.monotonic_ns()) / SECOND))

    def _handle_signal(self, number: int) -> None:
        self._interrupts += number == signal.SIGINT
        if number == signal.SIGINT and self._interrupts > 1:
            self._carry_out(self._supervisor.kill_all())
        elif number in STOPS:
            self._carry_out(self._supervisor.stop_all(time.monotonic_ns()))
        elif number == signal.SIGUSR1:
            self._carry_out(self._supervisor.start_down(time.monotonic_ns()))
        elif number == signal.SIGUSR2:
            self._carry_out(self._supervisor.restart_nodes(time.monotonic_ns()))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Start):
                self._start(self._daemons[action.name])
            elif isinstance(action, Send):
                if action.name in self._running:  # otherwise it could not be started, which the supervisor learns next
                    self._running[action.name].send_signal(action.signal)
                    if action.signal is signal.SIGTERM:
                        self._running[action.name].send_signal(signal.SIGCONT)  # a frozen process ends, too
            elif isinstance(action, Say):
                print(f"penstock up: {action.text}", file=sys.stderr, flush=True)
            else:
                self._open_control()
                allowed = self._control.data if self._control is not None else None
                print(
                    welcome(list(self._daemons.values()), allowed, self._client.secure, self._logs.directory),
                    flush=True,
                )

    def _open_control(self) -> None:
        if self._control is not None:
            try:
                self._control.open()
            except OSError as error:
                print(f"penstock up: penstock chaos is not available: {error}", file=sys.stderr, flush=True)

    def _response(self, request: Request) -> dict[str, object]:
        """Carry out a request of `penstock chaos`, and return the state of the set; with `error` if it is refused."""
        response: dict[str, object] = {}
        try:
            self._carry_out(self._actions_of(request))
        except RefusedError as error:
            response["error"] = str(error)
        nodes = [
            {"name": name, "state": self._supervisor.state(name).name.lower(), "http_port": daemon.http_port}
            for name, daemon in self._daemons.items()
            if daemon.is_node
        ]
        lookupd, *_, admin = self._daemons.values()
        return response | {"nodes": nodes, "lookupd_port": lookupd.tcp_port, "admin_port": admin.http_port}

    def _actions_of(self, request: Request) -> list[Action]:
        """Return the actions that a request needs. Raises RefusedError."""
        name, now, supervisor = request.name, time.monotonic_ns(), self._supervisor
        until = now + int(request.seconds * SECOND) if request.seconds else NEVER
        if request.command == "status":
            return []
        if name not in self._daemons or not self._daemons[name].is_node:
            raise RefusedError(f"{name} is not a node of this set")
        match request.command:
            case "kill":
                return supervisor.kill(name, until, now)
            case "start":
                return supervisor.start(name, now)
            case "freeze":
                return supervisor.freeze(name, until)
            case "thaw":
                return supervisor.thaw(name)
        raise RefusedError("this penstock up does not know the command: it is of another version")

    def _start(self, daemon: Daemon) -> None:
        if self._verbose:
            print(shlex.join(daemon.command), flush=True)
        try:
            for flag in daemon.flags:
                if flag.startswith("-data-path="):
                    Path(flag.partition("=")[2]).mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._logs.open(daemon.name) as output:
                self._running[daemon.name] = subprocess.Popen(
                    daemon.command, stdin=subprocess.DEVNULL, stderr=output, start_new_session=True
                )
        except OSError as error:  # no process or no directory can be made at the moment
            print(f"penstock up: cannot start {daemon.name}: {error}", file=sys.stderr, flush=True)
            self._not_started.append(daemon.name)

    def _answers(self, daemon: Daemon) -> bool:
        """Return True if the daemon serves; a node also takes messages, and nsqlookupd, unless that is down, knows it."""
        answer = self._client.get(daemon, "/readyz" if daemon.is_node else "/ping")
        if answer is None or answer == IGNORANT:
            return False
        is_lookupd_down = self._supervisor.state(self._lookupd.name) is State.DOWN
        return not daemon.is_node or is_lookupd_down or self._is_registered(daemon)

    def _is_registered(self, daemon: Daemon) -> bool:
        try:
            producers = json.loads(self._client.get(self._lookupd, "/nodes") or b"{}").get("producers", [])
        except ValueError:  # the answer was cut off
            return False
        return any(producer["tcp_port"] == daemon.tcp_port for producer in producers)


class Client:
    """The HTTP client of the daemons; if the set is secure, over HTTPS and with a token."""

    def __init__(self, secure: SecureSet | None) -> None:
        """Read the files of a secure set. Raises OSError."""
        self.secure = secure
        self._context = secure.context() if secure is not None else None
        self._headers = secure.headers() if secure is not None else {}

    def get(self, daemon: Daemon, path: str) -> bytes | None:
        """Return the body of a response, whatever its status, or None if there is none."""
        timeout, context = RESPONSE_TIMEOUT, self._context
        connection = (
            http.client.HTTPConnection(HOST, daemon.http_port, timeout=timeout)
            if context is None
            else http.client.HTTPSConnection(HOST, daemon.https_port, timeout=timeout, context=context)
        )
        try:
            connection.request("GET", path, headers=self._headers)
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def add_command(commands: Commands) -> None:
    """Add the command `up` to the parser."""
    up = make_command(
        commands,
        "up",
        run,
        "start nsqlookupd, nsqd and nsqadmin in the foreground",
        DETAILS,
        "up\nup --nodes 3 --port-offset 1000",
    )
    up.add_argument(
        "--nodes",
        type=whole_number(1, 64),
        default=1,
        metavar="N",
        help="number of nsqd, on ports 4150, 4250, ...; several are a cluster (1 to 64, default: 1)",
    )
    text = "directory for the data of all daemons (default: ./data)"
    up.add_argument("--data", type=Path, default=Path("data"), metavar="DIR", help=text)
    up.add_argument(
        "--port-offset",
        type=whole_number(-4000, 54000),
        default=0,
        metavar="N",
        help="number to add to every port but --shared-port (-4000 to 54000, default: 0)",
    )
    up.add_argument(
        "--shared-port",
        type=whole_number(1, 65535),
        default=0,
        metavar="PORT",
        help="TCP port at which producers get any one of the nsqd, so that one address uses all cores (default: none)",
    )
    _add_modes(up)


def _add_modes(up: argparse.ArgumentParser) -> None:
    """Add the options that change how the daemons run."""
    up.add_argument(
        "--restart",
        action="store_true",
        help="restart a daemon that died, at most 9 times in a row (default: it stays down, and the others continue)",
    )
    up.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of every nsqd, such as failover-after=3s (may be given multiple times; see "
        "docs/reference/configuration.md)",
    )
    up.add_argument(
        "--chaos",
        action="store_true",
        help="allow `penstock chaos` to kill, freeze and partition nodes; the nodes serve /debug routes, on loopback",
    )
    up.add_argument(
        "--secure",
        type=Path,
        metavar="DIR",
        help="make certificates, tokens and an auth file in DIR unless they are there; every port wants TLS and a token",
    )
    up.add_argument(
        "--logs", action="store_true", help="print the logs of all daemons here (default: files in DIR/logs)"
    )
    up.add_argument("-v", "--verbose", action="store_true", help="also print the command line of each daemon")


def _setting(text: str) -> str:
    """Return the flag for an option of nsqd, given as NAME=VALUE, or as NAME to switch it on."""
    name, _, _ = text.partition("=")
    if not re.fullmatch("[a-z][a-z0-9-]{0,99}", name):
        raise argparse.ArgumentTypeError("expected NAME=VALUE, such as failover-after=3s")
    if name in OWN_OPTIONS:
        raise argparse.ArgumentTypeError(f"penstock up sets {name} itself, for each node")
    return f"-{text}"
