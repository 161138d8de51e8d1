"""The introduction of a client: the values that IDENTIFY agrees on, the layers that the client asks for, and AUTH.

A client may repeat IDENTIFY, but some values of the first one hold permanently (as in the original).
"""

from collections.abc import Callable

from nsqd.protocols.account import AccountClient
from nsqd.protocols.credential import Credential
from nsqd.protocols.nsq.access import Access
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, AuthRequest
from nsqd.protocols.nsq.commands import AUTH_BODY, IDENTIFY_BODY, read_body
from nsqd.protocols.nsq.context import Context, no_auth_servers
from nsqd.protocols.nsq.errors import WireError
from nsqd.protocols.nsq.identify import Agreement, answer, apply, decode
from nsqd.protocols.nsq.liveness import Liveness
from nsqd.protocols.nsq.settings import HANDSHAKE_TIMEOUT, MAX_IDENTIFY
from nsqd.protocols.transport import NEVER, Transport
from shared.tls.info import TlsInfo


class Introduction:
    """The introduction of one client.

    Commands take the buffer and the positions at which the command and its body begin; they raise WireError, NeedMore and
    Waiting.
    """

    __slots__ = (
        "_ask", "_remote_ip", "_settings", "_transport", "access", "agreed", "identified", "identity", "liveness", "tls",
    )  # fmt: skip

    def __init__(self, context: Context, client: AccountClient, transport: Transport, remote_ip: str, now: int) -> None:
        """`client`: as the account of its identity sees it."""
        settings = context.settings
        self._settings = settings
        self._ask = context.ask
        self._transport = transport
        self._remote_ip = remote_ip
        self.identity = Agreement(
            client_id=remote_ip,
            hostname=remote_ip,
            output_buffer_timeout=settings.output_buffer_timeout,
            msg_timeout=settings.msg_timeout,
        )
        # of the first IDENTIFY, whatever later ones contain: heartbeats, delivery (quirk)
        self.agreed = self.identity
        self.identified = False
        self.tls: TlsInfo | None = None  # details of the handshake, once it is done
        credential = None
        if context.proofs is not None:
            credential = Credential(context.proofs, context.accounts, client, transport, remote_ip)
        has_servers = settings.auth_required and context.ask is not no_auth_servers
        self.access = Access(self._ask_servers if has_servers else None, credential)
        self.liveness = Liveness(now, settings.identify_timeout, self.identity.heartbeat_interval)

    def identify(self, data: bytes, start: int, at: int, now: int) -> tuple[bytes, int]:
        """Handle IDENTIFY: return the answer, and where the command ends."""
        limit = min(MAX_IDENTIFY, self._settings.max_body_size)
        body, end = read_body(data, start, at, IDENTIFY_BODY, limit)
        self.identity, failure = apply(decode(body), self._settings)
        if failure is not None:
            raise failure
        self.liveness.agree(self.identity.heartbeat_interval, not self.identified, now)
        if not self.identified:
            self.agreed = self.identity
        self.identified = True
        if self.identity.upgrade.tls:
            self.liveness.handshake_due = now + HANDSHAKE_TIMEOUT
        self._transport.timer_changed()
        return answer(self.identity, self._settings), end

    def upgraded(self, tls: TlsInfo | None) -> None:
        """Handle that the next layer is in place: TLS if `tls` is given, else compression."""
        if tls is not None:
            self.tls = tls
            if self.access.credential is not None:
                self.access.credential.show_certificate(tls)
            self.liveness.handshake_due = NEVER
            self._transport.timer_changed()  # heartbeats begin

    def auth(self, words: list[bytes], data: bytes, start: int, at: int) -> tuple[bytes, int]:
        """Handle AUTH: return the answer, and where the command ends."""
        if len(words) != 1:
            raise WireError("E_INVALID", "AUTH invalid number of parameters")
        secret, end = read_body(data, start, at, AUTH_BODY, self._settings.max_body_size)
        return self.access.auth(secret), end

    def _ask_servers(self, secret: bytes) -> None:
        """Have the authorization servers asked, and suspend the connection until they answer."""
        common_name = self.tls.common_name if self.tls else ""
        request = AuthRequest(self._remote_ip, self.tls is not None, common_name, secret)

        def begin(over: Callable[[], None]) -> None:
            def answered(response: Authorization | AuthRefused) -> None:
                self.access.answered(response)
                over()

            self._ask(request, answered)

        self._transport.suspend(begin)
