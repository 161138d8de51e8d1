"""Entry points of the console scripts.

In an installed wheel the rooms (nsqd, lookupd, apps, admin, shared, pipeline) are in `penstock/_app`, so that site-packages
gains only the names `penstock` and `pyspark_nsq`; in a checkout they are next to `penstock`. A script puts the directory of the
rooms first in the module search path, and only its function imports a room.
"""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module

TYPE_CHECKING = False  # typing is not imported: the start is short
if TYPE_CHECKING:
    import argparse

_HERE = os.path.dirname(os.path.abspath(__file__))
_APP = os.path.join(_HERE, "_app")
_ROOMS = _APP if os.path.isdir(_APP) else os.path.dirname(_HERE)
_VERSION_ONLY = (["-version"], ["--version"])
_DAEMONS = ("nsqd.main", "lookupd.main", "admin.main", "nsqd.commands.disque_server")
_ALL_NODES = (  # subcommands of `penstock` about all nodes, of admin.terminal.main
    "alarms", "bury", "channels", "clients", "config", "create", "delete", "disconnect", "doctor", "drain", "empty", "finish",
    "kick", "messages", "move", "nodes", "pause", "peek", "producers", "queues", "redrive", "request", "requeue", "show",
    "status", "support-bundle", "top", "topics", "tubes", "undrain", "unpause",
)  # fmt: skip
_ELSEWHERE = {  # subcommands whose module is outside apps, and reads the arguments that follow
    "verify": "nsqd.commands.verify",
    "import": "nsqd.commands.import_command",
    "restore": "nsqd.commands.restore_command",
    "archive": "pipeline.main",
    "pipeline": "pipeline.main",
    "users": "admin.users.command",
    "auth": "shared.auth.command",
    "audit": "shared.audit.command",
}


def _run(module: str, program: str = "") -> None:
    """Run `main` of the module and exit with its result.

    If `program` is given, a lone -version prints the same line as the module would, without importing it. Our rooms come
    before PYTHONPATH and the working directory, which may have another `shared` or `admin`.
    Until its event loop handles them, SIGINT and SIGTERM end a daemon with exit code 0 and no traceback: process 1 of a
    container would ignore them.
    """
    for number in (signal.SIGINT, signal.SIGTERM) if module in _DAEMONS else ():
        signal.signal(number, lambda *_: sys.exit(0))
    sys.path.insert(0, _ROOMS)
    if program and sys.argv[1:] in _VERSION_ONLY:
        print(import_module("shared.version").version_line(program))
        return
    sys.exit(import_module(module).main())


def _script(module: str, program: str = "") -> Callable[[], None]:
    """Return the function that a console script calls."""
    return lambda: _run(module, program)


nsqd = _script("nsqd.main", "nsqd")
nsqlookupd = _script("lookupd.main", "nsqlookupd")
nsqadmin = _script("admin.main", "nsqadmin")
nsq_stat = _script("apps.nsq_stat", "nsq_stat")
nsq_tail = _script("apps.nsq_tail", "nsq_tail")
nsq_to_file = _script("apps.to_file.main", "nsq_to_file")
nsq_to_http = _script("apps.nsq_to_http", "nsq_to_http")
nsq_to_nsq = _script("apps.nsq_to_nsq", "nsq_to_nsq")
to_nsq = _script("apps.to_nsq")
beanstalkd = _script("nsqd.commands.beanstalkd")  # nsqd's port for clients of beanstalkd, without NSQ's ports
disque_server = _script("nsqd.commands.disque_server")  # the same for clients of Disque
pipeline = _script("pipeline.main")  # `penstock pipeline`, for spark-submit


def _parsers() -> "list[argparse.ArgumentParser]":
    """Return the parsers of all commands of `penstock`."""
    others = ("pipeline.command_line" if one == "pipeline.main" else one for one in _ELSEWHERE.values())
    modules = dict.fromkeys(("admin.terminal.main", "apps.penstock", *others))
    return [import_module(module).parser() for module in modules]


def _complete() -> int:
    """Print the words of all commands for a shell, and return the exit code."""
    return int(import_module("shared.terminal.completion").main(_parsers(), sys.argv[2:]))


def penstock() -> None:
    """Run a subcommand of `penstock`: `up` and others in apps, and those in _ELSEWHERE that need nsqd, admin or pipeline."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    module = _ELSEWHERE.get(name)
    if name == "doctor" and any(word.startswith("--lake") for word in sys.argv[2:]):  # of a lake, not of the nodes
        module = "pipeline.doctor"
    if module and name != "archive":  # which is a job of the pipeline, too
        del sys.argv[1]
    try:
        if not module and name != "completion":
            _run("admin.terminal.main" if name in _ALL_NODES else "apps.penstock")
        sys.path.insert(0, _ROOMS)
        main = import_module(module).main if module else _complete
        sys.exit(import_module("shared.terminal.commands").run_command(main, lambda: f"penstock {name}"))
    except KeyboardInterrupt:  # during the imports, or of a command that does not handle it
        sys.exit(130)


_SCRIPTS = {
    "nsqd": nsqd, "nsqlookupd": nsqlookupd, "nsqadmin": nsqadmin, "nsq_stat": nsq_stat, "nsq_tail": nsq_tail,
    "nsq_to_file": nsq_to_file, "nsq_to_http": nsq_to_http, "nsq_to_nsq": nsq_to_nsq, "to_nsq": to_nsq,
    "beanstalkd": beanstalkd, "penstock": penstock, "disque-server": disque_server,
}  # fmt: skip


def main() -> None:
    """Run the program that the first argument names, with the arguments that follow."""
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in _SCRIPTS:
        sys.exit(f"usage: python -m penstock.launch {'|'.join(_SCRIPTS)} [flags]")
    _SCRIPTS[name]()


if __name__ == "__main__":  # `python -P .../launch.py nsqd ...` is how `penstock up` starts the daemons
    main()
