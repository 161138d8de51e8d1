"""The program `penstock` and the list of its commands."""

import argparse
import sys
from collections.abc import Sequence
from functools import cache

import httpx

from apps import (
    backup,
    chaos,
    cluster_certs,
    cluster_forget,
    cluster_promote,
    cluster_status,
    leave,
    messages,
    queues,
    recover,
    up,
)
from apps.commands import CommandError, Commands
from shared.version import version_line

_ELSEWHERE = {  # commands of other components, which penstock/launch.py runs
    "import": "import the data directory of NSQ's nsqd, beanstalkd -b or Disque",
    "restore": "make a data directory from a backup of a node that is lost",
    "auth": "say who may do what: token create, list, revoke; can",
    "audit": "check and show audit files of nsqd: verify, show",
    "users": "manage the users of nsqadmin: set, remove, list",
    "archive": "archive topics as a table of Delta Lake",
    "pipeline": "compact, roll up, report and replay the archive",
    "doctor": "check whether everything that archives and Spark need is there",
    "verify": "check a data directory, and print what is live, finished and corrupt",
}


def main(command_line: Sequence[str] | None = None) -> int:
    """Run the command, by default that of sys.argv, and return its exit code, which is 2 for wrong arguments."""
    arguments = _parser().parse_args(command_line)
    try:
        return int(arguments.main(arguments))
    except CommandError as error:
        why, code = str(error), error.exit_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why, code = f"cannot reach nsqd at {arguments.nsqd_http_address}: {error}", 1
    print(f"{arguments.program}: {why}", file=sys.stderr)
    return code


@cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", description="The programs of the message queue Penstock.")
    parser.add_argument("--version", action="version", version=version_line("penstock"))
    commands = parser.add_subparsers(required=True, metavar="command")
    up.add_command(commands)
    messages.add_commands(commands)
    queues.add_command(commands)
    backup.add_command(commands)
    recover.add_command(commands)
    add_cluster_commands(commands)
    leave.add_command(commands)
    chaos.add_command(commands)
    for name, what in _ELSEWHERE.items():
        commands.add_parser(name, help=what, add_help=False)
    return parser


def add_cluster_commands(commands: Commands) -> None:
    """Add the command `cluster`, with its subcommands, to the parser."""
    what = "show the state of a cluster of nsqd, make its certificates, and replace a lost node"
    cluster = commands.add_parser("cluster", help=f"{what}: status, wait, certs, forget, promote", description=what)
    below = cluster.add_subparsers(required=True, metavar="command")
    cluster_status.add_commands(below)
    cluster_certs.add_command(below)
    cluster_forget.add_command(below)
    cluster_promote.add_command(below)
