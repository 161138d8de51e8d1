"""Entry points of the console scripts.

Installed from a wheel, the rooms (nsqd, lookupd, apps, admin, shared, pipeline) live below `penstock/_app`, so that
site-packages gains the names `penstock` and `pyspark_nsq` only; in a checkout they are importable as they stand. Either way a
script enters here, and rooms are imported only inside the functions.
"""

import sys
from importlib import import_module
from pathlib import Path

_APP = Path(__file__).parent / "_app"
_ELSEWHERE = {  # commands of `penstock` that are not of apps
    "verify": "nsqd.verify",
    "import": "nsqd.take_over",
    "pipeline": "pipeline.main",
    "users": "admin.users_command",
    "doctor": "pipeline.doctor",
}


def _run(module: str) -> None:
    if _APP.is_dir():
        sys.path.insert(0, str(_APP))
    sys.exit(import_module(module).main())


def nsqd() -> None:
    """The message daemon."""
    _run("nsqd.daemon")


def nsqlookupd() -> None:
    """The discovery daemon."""
    _run("lookupd.daemon")


def nsqadmin() -> None:
    """The operators' API and pages."""
    _run("admin.daemon")


def nsq_tail() -> None:
    """Print a topic's messages."""
    _run("apps.nsq_tail")


def to_nsq() -> None:
    """Publish standard input."""
    _run("apps.to_nsq")


def beanstalkd() -> None:
    """nsqd's beanstalkd port alone."""
    _run("nsqd.beanstalkd")


def pipeline() -> None:
    """`penstock pipeline`, by itself."""
    _run("pipeline.main")


def penstock() -> None:
    """`penstock up` and its siblings. Some of them read what only nsqd knows to read."""
    module = _ELSEWHERE.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if module:
        del sys.argv[1]
        _run(module)
    _run("apps.penstock")


if __name__ == "__main__":  # `python -m penstock.launch nsqd ...`: how `penstock up` starts the daemons
    _SCRIPTS = {f.__name__: f for f in (nsqd, nsqlookupd, nsqadmin, nsq_tail, to_nsq, beanstalkd, penstock)}
    _name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if _name not in _SCRIPTS:
        sys.exit(f"usage: python -m penstock.launch {'|'.join(_SCRIPTS)} [flags]")
    _SCRIPTS[_name]()
