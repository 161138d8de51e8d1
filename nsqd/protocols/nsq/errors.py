"""The errors of the wire: mistakes of the client, in NSQ's words."""

from nsqd.core.message.frame import error
from nsqd.protocols.outbox import Outbox

# the last error to a producer whose publish has not got its copies in time
LOST_COPY = error(b"E_PUB_FAILED PUB failed NOREPL: no copy in time, the message may be delivered anyway")
NOT_FATAL = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"})


class WireError(Exception):
    """An error frame `<code> <text>`; the connection closes after it, except for the three codes in NOT_FATAL."""

    def __init__(self, code: str, text: str | bytes = "") -> None:
        super().__init__(code, text)
        if isinstance(text, str):
            text = text.encode("utf-8", "surrogateescape")
        self.code = code
        self.data = code.encode() + b" " + text if text else code.encode()

    @property
    def fatal(self) -> bool:
        """Return True if the connection closes after this error."""
        return self.code not in NOT_FATAL


class NotAllowedError(WireError):
    """The client may not do this, or has shown a wrong secret. `action` and `target` are for the audit."""

    def __init__(self, code: str, text: str, action: str, target: str = "") -> None:
        super().__init__(code, text)
        self.action = action
        self.target = target


class Dropped(Exception):
    """The connection closes without an error, as the original does for a command line beyond its buffer."""


def fail(outbox: Outbox, failure: WireError) -> None:
    """Send an error, and close the connection after it if the error is fatal."""
    outbox.reply(error(failure.data))
    if failure.fatal:
        outbox.closing = True


def quote(name: bytes) -> str:
    """Quote a name as Go's %q prints it: in double quotes, with escapes for what cannot be printed."""
    out = []
    for char in name.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if 0xDC80 <= code <= 0xDCFF:  # a byte that is not valid UTF-8
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


_ESCAPES = {char: "\\" + letter for char, letter in zip('"\\\a\b\f\n\r\t\v', '"\\abfnrtv', strict=True)}
