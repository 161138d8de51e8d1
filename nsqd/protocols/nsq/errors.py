"""Errors of the wire: the peer's fault, told in NSQ's words."""

from nsqd.core.message.frame import error
from nsqd.protocols.outbox import Outbox

NOT_FATAL = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"})


class WireError(Exception):
    """`<code> <text>` goes out as an error frame; unless it is one of three codes, the connection closes after it."""

    def __init__(self, code: str, text: str | bytes = "") -> None:
        super().__init__(code, text)
        said = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        self.code = code
        self.data = code.encode() + b" " + said if said else code.encode()

    @property
    def fatal(self) -> bool:
        """True if the connection closes after it."""
        return self.code not in NOT_FATAL


class Dropped(Exception):
    """The connection closes without a word, as the original does for a command line beyond its buffer."""


def fail(outbox: Outbox, failure: WireError) -> None:
    """Send an error; most end the connection."""
    outbox.reply(error(failure.data))
    if failure.fatal:
        outbox.closing = True


def quote(name: bytes) -> str:
    """A name as Go's %q prints it: in double quotes, what cannot be printed escaped."""
    out = []
    for char in name.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
            out.append(f"\\x{code - 0xDC00:02x}")
        elif char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        elif code < 0x80:
            out.append(f"\\x{code:02x}")
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(out) + '"'


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
