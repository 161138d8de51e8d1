"""The program `penstock` and the list of its commands."""

import argparse
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module

from shared.terminal.commands import Commands, NoAnswer, Parser, WrongArguments, run_command_line
from shared.version import version_line

LEAST_WIDTH = 40  # characters of a line of --help
_MODULES = {  # of apps, by command; only that of the command is imported
    "up": "up",
    "context": "contexts",
    "pub": "publishing",
    "put": "publishing",
    "sub": "consuming",
    "reserve": "consuming",
    "schedule": "schedule",
    "batch": "batch",
    "bench": "load",
    "read": "read",
    "cursors": "read",
    "backup": "backup",
    "recover": "recover",
    "leave": "leave",
    "chaos": "chaos",
}
_OWN = {  # the descriptions that these modules give their commands: --help imports none of them
    "up": "start nsqlookupd, nsqd and nsqadmin in the foreground",
    "context": "save the addresses and credentials of sets of daemons, and choose the one that commands use",
    "pub": "publish messages to a topic",
    "put": "put jobs into a tube of beanstalkd's clients",
    "sub": "print the messages of a channel as they come, and finish them",
    "reserve": "print the jobs of tubes as they come, and delete them",
    "schedule": "publish messages again and again, or at a time",
    "batch": "see and close batches of messages, and wait until they are done",
    "bench": "measure how fast a cluster takes and delivers messages, or jobs",
    "read": "print the messages that a topic retains, finished or not",
    "cursors": "list the cursors of a topic, and their lag",
    "backup": "copy the data directory of a running nsqd, as it was at one moment",
    "recover": "make the data directory of a lost node from a copy of its log on another node",
    "leave": "have a node transfer its logs to other nodes, and leave the cluster permanently",
    "chaos": "break a node of a local set on purpose, to practice a failover: kill, start, freeze, thaw, partition, heal",
    "cluster": "show the state of a cluster of nsqd, make its certificates, and replace a lost node: status, wait, "
    "certs, forget, promote",
}  # fmt: skip
_ELSEWHERE = {  # commands of other components, which penstock/launch.py runs
    "status": "say whether all is well: nodes, topics, backlog, alarms",
    "topics": "list topics with their counts",
    "channels": "list channels with their counts",
    "tubes": "list tubes of beanstalkd's clients",
    "queues": "list queues of Disque's clients, which are tubes",
    "nodes": "list nodes with their state, disk and role",
    "clients": "list the consumers of channels",
    "producers": "list the connections that publish",
    "alarms": "list the alarms that hold now",
    "top": "show the topics with their rates, again and again",
    "messages": "list messages of a channel, or jobs of a queue",
    "show": "print one message with all that is known of it",
    "peek": "print messages of a channel, or jobs of a queue",
    "create": "create a topic or a channel",
    "delete": "delete a topic or a channel",
    "empty": "drop the messages of a topic or a channel",
    "pause": "hold the messages of a topic or a channel back",
    "unpause": "end a pause",
    "config": "show or change the settings of a topic",
    "finish": "finish messages or jobs",
    "requeue": "requeue messages or jobs",
    "kick": "make buried or deferred messages or jobs ready",
    "bury": "bury messages or jobs",
    "move": "publish messages to another topic, and finish them",
    "redrive": "move dead letters back to the topics that they come from",
    "drain": "have a node take no further messages",
    "undrain": "have a node take messages again",
    "disconnect": "end the connection of a consumer",
    "request": "send a request to the HTTP API of all nodes",
    "import": "import the data directory of NSQ's nsqd, beanstalkd -b or Disque",
    "restore": "make a data directory from a backup of a node that is lost",
    "auth": "say who may do what: token create, list, revoke; can",
    "audit": "check and show audit files of nsqd: verify, show",
    "users": "manage the users of nsqadmin: set, remove, list",
    "archive": "archive topics as a table of Delta Lake",
    "pipeline": "compact, roll up, report and replay the archive",
    "doctor": "find problems before they hurt: addresses, clocks, disks, certificates, versions, limits",
    "support-bundle": "write an archive with the state of all daemons",
    "completion": "print a script by which a shell completes commands",
    "verify": "check a data directory, and print what is live, finished and corrupt",
}
CLUSTER = """
examples:
  penstock cluster status
  penstock cluster wait --for safe
"""
GROUPS = {  # of --help
    "See": (
        "status", "alarms", "nodes", "topics", "channels", "tubes", "queues", "clients", "producers", "top", "messages", "show",
        "peek", "cluster",
    ),
    "Act": (
        "create", "delete", "empty", "pause", "unpause", "config", "finish", "requeue", "kick", "bury", "move", "redrive",
        "disconnect", "drain", "undrain", "leave", "request",
    ),
    "Use": ("pub", "sub", "put", "reserve", "schedule", "batch", "read", "cursors", "bench"),
    "Diagnose": ("doctor", "support-bundle", "verify", "audit", "chaos"),
    "Set up": ("up", "context", "auth", "users", "backup", "restore", "recover", "import", "completion"),
    "Archive": ("archive", "pipeline"),
}  # fmt: skip
BEGIN = """
`penstock up` starts a server on this machine, and the other commands find it. For another one, save its address:
`penstock context add NAME --lookupd-http-address HOST:PORT`. `penstock COMMAND --help` has examples.
"""


def main(command_line: Sequence[str] | None = None) -> int:
    """Run the command, by default that of sys.argv, and return its exit code, which is 2 for wrong arguments."""
    return run_command_line(parser, command_line, _run)


def _run(arguments: argparse.Namespace) -> int:
    """Run a command, with the context's addresses and credentials if it is one about a node. Raises CommandError."""
    if not hasattr(arguments, "auth_token_file") or arguments.program.startswith("penstock context"):
        return int(arguments.main(arguments))
    import httpx

    from apps.node_client import use_context

    use_context(arguments)
    try:
        return int(arguments.main(arguments))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(_no_answer(arguments.nsqd_http_address, error)) from None


def _no_answer(address: str, error: Exception) -> str:
    """Return the reason why a node gave no answer, and what to do."""
    import httpx

    from shared.terminal.context import start_advice
    from shared.tls.client import why_failed

    if isinstance(error, httpx.ReadTimeout | httpx.RemoteProtocolError | httpx.ReadError):
        why = f"nsqd at {address} has not answered ({why_failed(error)}): it may have done what was asked, or not"
    else:
        why = f"cannot reach nsqd at {address}: {why_failed(error)}"
    return f"{why}: {start_advice(address)}"


@cache
def parser(only: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands, or of the module that has the command `only`; "-": without their arguments."""
    program = Parser(
        prog="penstock", usage="penstock COMMAND ...", description=f"Run and operate message queues.\n{BEGIN}"
    )
    program.add_argument("--version", action="version", version=version_line("penstock"))
    commands = program.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="penstock")
    if only[:1] not in ("", "-") and only not in {*_OWN, *_ELSEWHERE}:
        raise WrongArguments(_unknown(only))
    for module in dict.fromkeys([_MODULES[only]] if only in _MODULES else [] if only else _MODULES.values()):
        found = import_module(f"apps.{module}")
        (getattr(found, "add_commands", None) or found.add_command)(commands)
    if only in ("cluster", ""):
        add_cluster_commands(commands)
    for name, what in (_OWN if only.startswith("-") else {}).items():
        commands.add_parser(name, help=what, add_help=False)
    for name, what in _ELSEWHERE.items():
        commands.add_parser(name, help=what, add_help=False)
    program.epilog = "\n\n".join(_listed({one.dest: one.help or "" for one in commands._choices_actions}))
    return program


def _listed(abouts: dict[str, str]) -> Iterator[str]:
    """Yield the part of --help about each group of commands. `abouts`: their descriptions."""
    room = max(shutil.get_terminal_size().columns - 2, LEAST_WIDTH)
    for group, names in GROUPS.items():
        lines = (
            textwrap.fill(f"{name:<14} {abouts[name]}", room, initial_indent="  ", subsequent_indent=" " * 17)
            for name in names
            if name in abouts
        )
        yield "\n".join((f"{group}:", *lines))


def _unknown(name: str) -> str:
    """Return the error that there is no such command, with the most similar one."""
    from difflib import get_close_matches

    similar = get_close_matches(name, (one for group in GROUPS.values() for one in group), 1)
    advice = f"did you mean `penstock {similar[0]}`?" if similar else "see penstock --help"
    return f"unknown command {name[:100]!r}: {advice}"


def add_cluster_commands(commands: Commands) -> None:
    """Add the command `cluster`, with its subcommands, to the parser."""
    from apps import cluster_certs, cluster_lost, cluster_status

    what = "show the state of a cluster of nsqd, make its certificates, and replace a lost node"
    cluster = commands.add_parser(
        "cluster", help=f"{what}: status, wait, certs, forget, promote", description=what, epilog=CLUSTER
    )
    below = cluster.add_subparsers(required=True, metavar="command")
    cluster_status.add_commands(below)
    cluster_certs.add_command(below)
    cluster_lost.add_commands(below)
