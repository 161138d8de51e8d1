"""A broker for taskiq whose tasks are jobs of a tube: install the extra `taskiq`. See docs/how-to/task-libraries.md#taskiq.

* `broker`: PenstockBroker, over penstock.jobs. taskiq runs on asyncio alone.

This package imports no room and not `shared`; only it imports taskiq.
"""

from penstock.taskiq.broker import PenstockBroker

__all__ = ["PenstockBroker"]
