"""The program `penstock` and the list of its commands.

Those that are in this room are in up.py, chaos.py, messages.py, queues.py, backup.py, recover.py, leave.py, cluster_status.py,
cluster_certs.py, cluster_forget.py and cluster_promote.py.
"""

import argparse
from functools import cache

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
from shared.version import version_line


def main() -> int:
    """Run the command and return its exit code, which is 2 for wrong arguments."""
    arguments = _parser().parse_args()
    code: int = arguments.main(arguments)
    return code


@cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", description="The Penstock messaging daemon set.")
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
    commands.add_parser(
        "import", help="import the data directory of NSQ's nsqd, beanstalkd -b or Disque", add_help=False
    )
    commands.add_parser("restore", help="make a data directory from a backup of a node that is lost", add_help=False)
    commands.add_parser("auth", help="say who may do what: token create, list, revoke; can", add_help=False)
    commands.add_parser("audit", help="check and show audit files of nsqd: verify, show", add_help=False)
    commands.add_parser("users", help="manage the users of nsqadmin: set, remove, list", add_help=False)
    commands.add_parser(
        "pipeline", help="archive topics as Parquet on Spark; roll up, report and replay them", add_help=False
    )
    commands.add_parser("doctor", help="check whether everything that the pipeline needs is installed", add_help=False)
    commands.add_parser(
        "verify", help="check a data directory, and print what is live, finished and damaged", add_help=False
    )
    return parser


def add_cluster_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `cluster`, with those below it, to the parser."""
    what = "see whether a cluster of nsqd is whole, prepare one, and tell it which node is gone"
    words = "status, wait, certs, forget, promote"
    cluster = commands.add_parser("cluster", help=f"{what}: {words}", description=f"{what.capitalize()}.")
    below = cluster.add_subparsers(required=True, metavar="command")
    cluster_status.add_commands(below)
    cluster_certs.add_command(below)
    cluster_forget.add_command(below)
    cluster_promote.add_command(below)
