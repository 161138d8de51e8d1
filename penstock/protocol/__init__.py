"""The client's side of the wire protocols, sans-IO: the functions take bytes and return bytes.

No socket, clock, file, log or random number is used in this package, and it imports no room and not `shared`.

* `nsq` encodes commands for nsqd's TCP protocol V2 and decodes its frames.
* `lookup` encodes commands for nsqlookupd's TCP protocol V1 and decodes its replies.
* `compression` holds the snappy and deflate streams, both directions.
* `framing` decodes the length-prefixed stream in which both daemons answer.
* `beanstalk` encodes commands of beanstalkd's protocol and decodes its replies.
* `names` tells which topic and channel names are legal.

Encoders raise ValueError for an argument that can never be legal (a bad name would be a second command); decoders raise
ProtocolError for a stream that they cannot understand. Any other exception from this package is a bug.
"""

from penstock.protocol.framing import ProtocolError
from penstock.protocol.names import is_ephemeral, is_valid_name

__all__ = ["ProtocolError", "is_ephemeral", "is_valid_name"]
