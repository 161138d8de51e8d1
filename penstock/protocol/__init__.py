"""The client's side of the wire protocols, sans-IO: bytes in, bytes out.

No socket, clock, file, log or random number is used in this package, and it imports no room and not `shared`.

* `nsq` encodes commands for nsqd's TCP protocol V2 and decodes its frames.
* `lookup` encodes commands for nsqlookupd's TCP protocol V1 and reads its replies.
* `compression` holds the snappy and deflate streams, both directions.
* `framing` decodes the length-prefixed stream in which both daemons answer.
* `beanstalk` decodes the replies of beanstalkd's protocol.
* `names` checks topic and channel names, `headers` those of messages.

Encoders raise ValueError for an argument that can never be legal (a bad name would be a second command); decoders raise
ProtocolError for a stream that they cannot understand. Any other exception from this package is a bug.
"""

from penstock.protocol.framing import ProtocolError
from penstock.protocol.names import is_ephemeral, is_valid_name

__all__ = ["ProtocolError", "is_ephemeral", "is_valid_name"]
