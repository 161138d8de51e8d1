"""The parts of asyncio that shared/http extends or reads without a promise of its authors are there.

If one of these fails with a new version of Python, look at secure.py and transport.py before anything else.
"""

import inspect
import re
from asyncio.sslproto import SSLProtocol

from shared.http.secure import SecureProtocol
from tests.cases import each

# The methods that are overridden or called, with their parameters.
SIGNATURES: list[tuple[type, str, str]] = [
    (SSLProtocol, "connection_lost", "self exc"), (SSLProtocol, "_do_handshake", "self"),
    (SSLProtocol, "pause_writing", "self"), (SSLProtocol, "resume_writing", "self"),
    (SSLProtocol, "_fatal_error", "self exc message"), (SSLProtocol, "_do_shutdown", "self"),
]  # fmt: skip
# The attributes of their objects that are read or set.
ATTRIBUTES: dict[type, str] = {
    SSLProtocol: "_app_protocol _app_state _incoming _loop _outgoing _shutdown_timeout_handle _ssl_buffer_view "
    "_ssl_reading_paused _transport"
}


def overridden(kind: type) -> set[str]:
    inherited = {name for base in kind.__mro__[1:-1] for name in vars(base)}
    return {name for name, value in vars(kind).items() if name in inherited and inspect.isfunction(value)} - {
        "__init__"
    }


@each("kind, name, parameters", SIGNATURES)
def test_a_method_has_the_signature_that_is_relied_on(kind: type, name: str, parameters: str) -> None:
    assert " ".join(inspect.signature(getattr(kind, name)).parameters) == parameters


def test_what_is_relied_on_is_there() -> None:
    assert {name for _, name, _ in SIGNATURES} == overridden(SecureProtocol)
    for kind, names in ATTRIBUTES.items():
        source = inspect.getsource(kind)
        for name in names.split():
            assert re.search(rf"\bself\.{name}\b(?:: [^=]+)? = ", source), name
    assert SSLProtocol.max_size > SecureProtocol.max_size
    assert "self.max_size" in inspect.getsource(SSLProtocol.__init__)
    assert "self._app_state = AppProtocolState.STATE_INIT" in inspect.getsource(SSLProtocol.__init__)
