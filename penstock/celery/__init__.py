"""A transport of kombu, so that Celery works over jobs and topics: `penstock://host:11300?nsqd=host:4150`.

Tasks are jobs in tubes; broadcasts (control commands, events) are messages of ephemeral topics.
See docs/how-to/task-libraries.md#celery.

* `entry`: loaded by kombu's entry points where the package is installed, so that the URL works without an import.
* `transport`: the transport and the channel that kombu calls. `outlet`: everything that is sent, over one connection to each
  server.
* `subscription`: a thread that receives broadcasts; the one that holds jobs is penstock.jobs.holder.
* `address`, `names`, `envelope`: the URL, names of tubes and topics, and bodies; pure.

This package imports no room and not `shared`; only `transport` and `entry` import kombu.
"""

ALIAS = "penstock"
TRANSPORT = "penstock.celery.transport:Transport"


def install() -> None:
    """Register the URL scheme penstock:// with kombu. Calling it again does nothing."""
    from kombu.transport import TRANSPORT_ALIASES

    TRANSPORT_ALIASES[ALIAS] = TRANSPORT
