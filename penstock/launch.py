"""Entry points of the console scripts.

In an installed wheel the rooms (nsqd, lookupd, apps, admin, shared, pipeline) are below `penstock/_app`, so that
site-packages gains the names `penstock` and `pyspark_nsq` only; in a checkout they stand beside `penstock`. In both
cases a script enters here, the directory of the rooms becomes the first in the module search path, and rooms are
imported only inside the functions.
"""

import os
import sys
from importlib import import_module

_HERE = os.path.dirname(os.path.abspath(__file__))
_APP = os.path.join(_HERE, "_app")
_ROOMS = _APP if os.path.isdir(_APP) else os.path.dirname(_HERE)
_VERSION_ONLY = (["-version"], ["--version"])
_ELSEWHERE = {  # subcommands of `penstock` whose module is outside apps
    "verify": "nsqd.commands.verify",
    "import": "nsqd.commands.import_command",
    "restore": "nsqd.commands.restore_command",
    "pipeline": "pipeline.main",
    "users": "admin.users.command",
    "auth": "shared.auth.command",
    "audit": "shared.audit.command",
    "doctor": "pipeline.doctor",
}


def _run(module: str, program: str = "") -> None:
    """Run `main` of the module and exit with its result.

    If `program` is given, a lone -version prints the same line as the module would, without importing it. Our rooms come
    before PYTHONPATH and the working directory, where a foreign `shared` or `admin` may stand.
    """
    sys.path.insert(0, _ROOMS)
    if program and sys.argv[1:] in _VERSION_ONLY:
        print(import_module("shared.version").version_line(program))
        return
    sys.exit(import_module(module).main())


def nsqd() -> None:
    """Run the message daemon, nsqd, and exit."""
    _run("nsqd.main", "nsqd")


def nsqlookupd() -> None:
    """Run the discovery daemon, nsqlookupd, and exit."""
    _run("lookupd.main", "nsqlookupd")


def nsqadmin() -> None:
    """Run nsqadmin, the operators' API and pages."""
    _run("admin.main", "nsqadmin")


def nsq_tail() -> None:
    """Run nsq_tail, which prints a topic's messages."""
    _run("apps.nsq_tail", "nsq_tail")


def to_nsq() -> None:
    """Run to_nsq, which publishes its standard input."""
    _run("apps.to_nsq")


def nsq_to_nsq() -> None:
    """Run nsq_to_nsq, which publishes a topic's messages to other nsqds."""
    _run("apps.nsq_to_nsq", "nsq_to_nsq")


def nsq_to_http() -> None:
    """Run nsq_to_http, which sends a topic's messages as HTTP requests."""
    _run("apps.nsq_to_http", "nsq_to_http")


def nsq_stat() -> None:
    """Run nsq_stat, which prints the depth and the rates of a channel."""
    _run("apps.nsq_stat", "nsq_stat")


def nsq_to_file() -> None:
    """Run nsq_to_file, which writes topics to files."""
    _run("apps.to_file.main", "nsq_to_file")


def beanstalkd() -> None:
    """Run nsqd's beanstalkd port alone, without NSQ's ports."""
    _run("nsqd.commands.beanstalkd")


def disque_server() -> None:
    """Run nsqd's port for clients of Disque alone, without NSQ's ports."""
    _run("nsqd.commands.disque_server")


def pipeline() -> None:
    """Run `penstock pipeline` as a script of its own."""
    _run("pipeline.main")


def penstock() -> None:
    """Run a subcommand of `penstock`: `up` and others in apps, and those in _ELSEWHERE that need nsqd, admin or pipeline."""
    module = _ELSEWHERE.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if module:
        del sys.argv[1]
        _run(module)
    _run("apps.penstock")


_TOOLS = (nsq_stat, nsq_tail, nsq_to_file, nsq_to_http, nsq_to_nsq, to_nsq)
_PROGRAMS = (nsqd, nsqlookupd, nsqadmin, *_TOOLS, beanstalkd, penstock)


def main() -> None:
    """Run the program that the first argument names, with the arguments that follow."""
    scripts = {f.__name__: f for f in _PROGRAMS} | {"disque-server": disque_server}
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in scripts:
        sys.exit(f"usage: python -m penstock.launch {'|'.join(scripts)} [flags]")
    scripts[name]()


if __name__ == "__main__":  # `python -P .../launch.py nsqd ...` is how `penstock up` starts the daemons
    main()
