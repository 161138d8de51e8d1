"""The wire, sans-IO: bytes in, bytes out. No socket, clock, file, log or random in this package.

* `nsq`     the client's side of nsqd's TCP protocol V2: commands out, frames in
* `lookup`  the client's side of nsqlookupd's TCP protocol V1: commands out, replies in
* `compression` snappy and deflate streams, both directions
* `framing` the length-prefixed stream both answer with
* `names`   which topic and channel names are legal

Encoders raise ValueError for what can never be legal (a bad name would be a second command); decoders raise
ProtocolError for a stream that cannot be understood. Any other exception out of here is a bug.
"""

from penstock.protocol.framing import ProtocolError
from penstock.protocol.names import is_ephemeral, is_valid_name

__all__ = ["ProtocolError", "is_ephemeral", "is_valid_name"]
