"""What shared/http extends or reads of asyncio without a promise of its authors: it is there, and our part is called.

If one of these fails with a new version of Python, look at secure.py and transport.py before anything else.
"""

import asyncio
import inspect
import re
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.http.secure import SecureProtocol
from shared.http.transport import forget
from tests.cases import each
from tests.daemons import eventually
from tests.shared.http.serving import all_of
from tests.shared.http.test_secure import GOOD, LAST, Site, ask

MUCH = b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /good HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
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
    """The methods of a class that its bases have, too."""
    inherited = {name for base in kind.__mro__[1:-1] for name in vars(base)}
    return {name for name, value in vars(kind).items() if name in inherited and inspect.isfunction(value)} - {
        "__init__"
    }


@each("kind, name, parameters", SIGNATURES)
def test_a_method_has_the_signature_that_is_relied_on(kind: type, name: str, parameters: str) -> None:
    assert " ".join(inspect.signature(getattr(kind, name)).parameters) == parameters


def test_what_is_relied_on_is_there() -> None:
    known = {(kind, name) for kind, name, _ in SIGNATURES}
    assert known == {(base, name) for own, base in ((SecureProtocol, SSLProtocol),) for name in overridden(own)}
    for kind, names in ATTRIBUTES.items():
        source = inspect.getsource(kind)
        for name in names.split():
            assert re.search(rf"\bself\.{name}\b(?:: [^=]+)? = ", source), name
    assert SSLProtocol.max_size > SecureProtocol.max_size
    assert "self.max_size" in inspect.getsource(SSLProtocol.__init__)
    assert "self._app_state = AppProtocolState.STATE_INIT" in inspect.getsource(SSLProtocol.__init__)


@pytest.mark.process
def test_a_transport_holds_itself_until_it_is_taken_apart() -> None:
    async def run() -> None:
        own, other = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, own)
        held: Any = transport
        assert held._read_ready_cb.__self__ is transport
        forget(transport)
        assert held._read_ready_cb is None
        transport.abort()
        other.close()

    asyncio.run(run())


@pytest.mark.process
def test_every_override_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[tuple[type, str]] = set()

    def recording(kind: type, name: str) -> Callable[..., Any]:
        real = vars(kind)[name]

        def method(self: Any, *arguments: Any, **named: Any) -> Any:
            called.add((kind, name))
            return real(self, *arguments, **named)

        return method

    kinds = (SecureProtocol,)
    expected = {(kind, name) for kind in kinds for name in overridden(kind)}
    for kind, name in expected:
        monkeypatch.setattr(kind, name, recording(kind, name))
    site = Site(tmp_path)
    with site.secure() as client:
        assert ask(client, POST).endswith(b"finebody")
        assert ask(client, GOOD).endswith(b"fine")
        client.sendall(MUCH)
        eventually(lambda: (SecureProtocol, "pause_writing") in called)
        client.sendall(LAST)
        assert all_of(client).endswith(b"fine")
    with site.secure() as client:
        assert b" 400 " in ask(client, b"nonsense\r\n\r\n")
    with site.raw() as stranger:  # no handshake: a fatal error of TLS
        stranger.sendall(GOOD)
        assert stranger.recv(4096)
    site.close()
    assert called == expected
