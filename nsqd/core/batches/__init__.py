"""Batches: messages that belong together, and messages that are published when all of them are finished.

A message with the header `batch` is a *member* of the batch of that name, which its first member creates. A message with the
header `after` is a *follow-up* of a batch: the node keeps it, and publishes it when the batch is done. A batch is done when it
is closed, none of its members is pending, and none of them is still a follow-up of another batch. A message is pending until
every reader has finished, dropped or buried it.

* `table`: the durable state of the batches of one log, in records and checkpoints.
* `batches`: the live batches of one log, which refuse messages and find out when they are done.

See docs/contributing/design/channel.md#batches.
"""
