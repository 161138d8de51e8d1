"""The nodes of a command: found through nsqlookupd or given by address, and asked all at once with deadlines.

A node that gives no answer, or refuses, is noted in `missing`; the answers of the others are used. The command then prints
which nodes are missing, and its exit code is 1.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from admin.nodes.answer_budget import AnswerBudget
from admin.nodes.cluster import AllFailed, Cluster, PartialResult, Producer, Producers, producer_of
from admin.nodes.fallback import FallbackUpstreams
from admin.nodes.places import Places, Settings
from admin.nodes.queries import Queries
from admin.nodes.upstreams import Gathered, Times, UpstreamError, Upstreams
from shared.auth.own_token import show_to, use_token
from shared.json_fields import JsonObject
from shared.terminal.commands import CommandError, NoAnswer
from shared.terminal.context import LOOKUPD, START, Context
from shared.terminal.token import token_of
from shared.tls.client import load_client
from shared.tls.info import TlsError

MOST_SHOWN = 3  # nodes whose errors are in one line
REFUSED = " answered "  # in the error of a node that has answered
MOST_ANSWER = 64 << 20  # bytes of one answer: some 200,000 topics
_SERVER = re.compile(r"https?://([^/\s]+)")
_ADVICE = {
    "UNAUTHORIZED": "give --auth-token-file with a token that it knows; over plain HTTP, only given addresses get it",
    "FORBIDDEN": "`penstock auth can` says what the token may do",
}
_FLAGS = ("-http-client-tls-", "--tls-")  # the flags of nsqadmin in advice, and those of commands

T = TypeVar("T", bound=PartialResult)
Kind = TypeVar("Kind")


class Session:
    """The nodes of a context. Make, use and close it in one event loop."""

    def __init__(self, context: Context, timeout: float) -> None:
        """`timeout`: s for each request. Raises CommandError if a file of the context cannot be used."""
        self.context = context
        self.clock = time.time_ns
        self.missing: dict[str, str] = {}  # by address: why there is no answer
        places = Places(lambda: _addresses(self.context), https_only=bool(context.tls_root_ca_file))
        common = (
            Times(timeout, timeout), _tls(context), AnswerBudget(MOST_ANSWER), places, bool(context.tls_cert),
        )  # fmt: skip
        self.direct, fallback = Upstreams(*common), FallbackUpstreams(*common, patience=timeout)
        self.cluster, asked = (
            ExpectedCluster(each, lambda: self.context.lookupd_http_address, context.nsqd_http_address)
            for each in (self.direct, fallback)
        )
        settings = Settings(context.lookupd_http_address)
        self.queries = Queries(settings, asked, fallback, self.direct, clock=self.clock)

    async def start(self) -> None:
        """Find the HTTPS ports of the given addresses, if all goes over TLS, and use the token from now on.

        Raises CommandError.
        """
        if self.context.tls_root_ca_file:
            lookupds, nsqds = self.context.lookupd_http_address, self.context.nsqd_http_address
            found = await asyncio.gather(*map(self._over_https, (*lookupds, *nsqds)))
            lookupds, nsqds = tuple(found[: len(lookupds)]), tuple(found[len(lookupds) :])
            self.context = replace(self.context, lookupd_http_address=lookupds, nsqd_http_address=nsqds)
            self.cluster.nsqds = self.queries.cluster.nsqds = nsqds
        _use_token(self.context)

    async def _over_https(self, address: str) -> str:
        """Return the HTTPS address of a daemon; an address that gives no answer stays as it is. Raises CommandError."""
        if address.startswith("https://"):
            return address
        try:
            found = await self.direct.https_of(address)
        except UpstreamError:
            return f"https://{address}"
        if not found:
            raise CommandError(f"{address} does not name its HTTPS port: give https://HOST:PORT")
        return found

    # Nodes

    async def producers(self, topic: str = "") -> list[Producer]:
        """Return the nodes, or those that have the topic. Raises NoAnswer, and CommandError if no node has the topic."""
        try:
            found = self.take(await (self.cluster.producers_of(topic) if topic else self.queries.producers()))
        except AllFailed as failed:
            if topic and "TOPIC_NOT_FOUND" in str(failed):
                raise CommandError(f"topic {topic} was not found: see penstock topics") from None
            raise self.no_answer(failed) from None
        if topic and not found.producers and not self.missing:
            raise CommandError(f"topic {topic} was not found: see penstock topics")
        if not found.producers:
            raise NoAnswer(f"no nsqd is registered at {', '.join(self.context.lookupd_http_address)}: {START}")
        _trust(self.context, self.direct.places, found)
        return found.producers

    async def penstock_nodes(self, topic: str = "") -> list[str]:
        """Return the addresses of the nodes that have more than NSQ's routes. Raises CommandError."""
        return [one.address for one in await self.queries.penstock_nodes(await self.producers(topic))]

    async def node(self, name: str) -> Producer:
        """Return the node with this address, or host name if it is the only one. Raises CommandError."""
        nodes = await self.producers()
        found = [one for one in nodes if name == one.address] or [one for one in nodes if name == one.hostname]
        if len(found) != 1:
            known = ", ".join(one.address for one in nodes)
            raise CommandError(f"{len(found) or 'no'} nodes are named {name[:100]}: use an address of {known}")
        return found[0]

    # Answers

    def take(self, found: T) -> T:
        """Return the result, and note its errors."""
        self.note(found.errors)
        return found

    def note(self, errors: Iterable[str]) -> None:
        """Note errors of nodes: the first one of each node."""
        for text in map(_advised, errors):
            server = _SERVER.search(text)
            self.missing.setdefault(server[1] if server else text[:80], text)

    async def gather(
        self, addresses: Iterable[str], path: str, arguments: dict[str, str] | None = None
    ) -> Gathered[JsonObject]:
        """Return the JSON objects of these nodes, and note the errors of the others. Raises as `noted` does."""
        return self.noted(await self.direct.objects_of(addresses, path, arguments))

    async def decoded(
        self, addresses: Iterable[str], path: str, arguments: dict[str, str], kind: type[Kind]
    ) -> dict[str, Kind]:
        """Return the JSON of these nodes as values of a Struct, by address; otherwise as `gather`."""

        async def ask(address: str) -> Kind:
            try:
                return msgspec.json.decode(await self.direct.get_bytes(address, path, arguments), type=kind)
            except msgspec.DecodeError as error:
                raise UpstreamError(f"{address}{path} answered something else: {error}") from None

        return self.noted(await self.direct.all_of(addresses, ask)).answers

    def noted(self, found: Gathered[Kind]) -> Gathered[Kind]:
        """Return the answers, and note the errors. Raises what `failure` returns if there is no answer."""
        if not found.answers:
            raise self.failure(found.errors)
        self.note(found.errors)
        return found

    def failure(self, errors: Sequence[str]) -> CommandError:
        """Return the error that no node has done what was asked: NoAnswer if none of them answered."""
        shown = "; ".join(map(_advised, errors[:MOST_SHOWN])) or "no node is known"
        if more := errors[MOST_SHOWN:]:
            shown += f"; and {len(more)} more"
        return CommandError(shown) if any(REFUSED in one for one in errors) else self.no_answer(shown)

    async def post(self, addresses: Iterable[str], path: str, arguments: dict[str, str]) -> dict[str, bytes]:
        """Send a command to these nodes. Returns the answers by address, and notes the errors of the others."""
        found = await self.direct.all_of(addresses, lambda one: self.direct.post(one, path, arguments))
        self.note(found.errors)
        return found.answers

    def no_answer(self, failure: Exception | str) -> NoAnswer:
        """Return the error that no node answers, with the remedy."""
        is_named = self.context.lookupd_http_address not in ((), (LOOKUPD,))
        remedy = "start it, or name nodes with --nsqd-http-address HOST:PORT" if is_named else START
        return NoAnswer(f"{str(failure).replace(*_FLAGS)}: {remedy}")


class ExpectedCluster(Cluster):
    """A cluster that also has the nodes that the context names and no nsqlookupd does, such as a lost node."""

    async def producers_of(self, topic: str) -> Producers:
        """Return the nodes that have the topic, from the nodes of the context if no nsqlookupd answers. Raises AllFailed.

        A node of the context that no nsqlookupd names for the topic, and that gives no answer, may have it: its error is noted.
        """
        try:
            found = await super().producers_of(topic)
            if self.lookupds:
                found.errors.extend((await self.upstreams.objects_of(self._others(found), "/info")).errors)
            return found
        except AllFailed as failed:
            if "TOPIC_NOT_FOUND" in str(failed):
                raise
            found = await self._without_lookupds(failed)
            return Producers(found.errors, [one for one in found.producers if one.carries(topic)])

    async def _without_lookupds(self, failed: AllFailed) -> Producers:
        """Return the nodes of the context that answer. Raises AllFailed."""
        if not (self.lookupds and self.nsqds):
            raise failed
        found = await self._producers_from_nsqds(self.nsqds)
        found.errors.append(str(failed))
        return found

    async def producers(self) -> Producers:
        """Return all nodes, also those that may give no answer. Raises AllFailed if none answers."""
        try:
            found = await super().producers()
        except AllFailed as failed:
            return await self._without_lookupds(failed)
        known, others = set(found.addresses), self._others(found) if self.lookupds else []
        answers = (await self.upstreams.objects_of(others, "/info")).answers
        for given in others:
            producer = producer_of(answers.get(given, {}))
            if not producer.broadcast_address:  # it gives no answer, or is an old NSQ
                producer = _known_by_address(given, is_lost=given not in answers)
            if producer.address not in known:  # a node may have several addresses
                self.upstreams.places.note_base(producer.address, given)
                found.producers.append(producer)
        return found

    def _others(self, found: Producers) -> list[str]:
        """Return the nodes of the context that are not among those found."""
        named = {*found.addresses, *(self.upstreams.places.base(one).rpartition("/")[2] for one in found.addresses)}
        return [given for given in self.nsqds if given.rpartition("/")[2] not in named]


def _known_by_address(address: str, *, is_lost: bool) -> Producer:
    """Return a node of which only the address is known. One that is lost counts as Penstock's: it is asked, and reported."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    return Producer("", host.strip("[]"), 0, int(port), "", capabilities=("log",) if is_lost else ())


def _addresses(context: Context) -> tuple[str, ...]:
    return (*context.lookupd_http_address, *context.nsqd_http_address)


def _tls(context: Context) -> ssl.SSLContext:
    """Return the authorities that requests trust, with the certificate that they present. Raises CommandError."""
    files = context.tls_root_ca_file, context.tls_cert, context.tls_key or context.tls_cert
    if not any(files) and not any(one.startswith("https://") for one in _addresses(context)):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading the authorities of the system takes 50 ms
    try:
        return load_client(*files, "tls-")
    except (TlsError, OSError) as error:
        raise CommandError(str(error)) from None


def _use_token(context: Context) -> None:
    """Present the token of the context to the addresses that it names. Raises CommandError."""
    use_token(token_of(context.auth_token_file, context.auth_token_command))
    show_to(map(_place, _addresses(context)))


def _trust(context: Context, places: Places, found: Producers) -> None:
    """Present the token also to nodes that nsqlookupd names, if they have a certificate of the context's authority.

    Without TLS, a token goes to the addresses that the user has given only: any client may register an address.
    """
    if context.tls_root_ca_file:
        bases = (places.base(address) for address in found.addresses)
        show_to(map(_place, (*_addresses(context), *(base for base in bases if base.startswith("https://")))))


def _advised(error: str) -> str:
    """Return an error of a node with the flags of commands, and what to do."""
    return error.replace(*_FLAGS) + next((f": {one}" for code, one in _ADVICE.items() if code in error), "")


def _place(address: str) -> str:
    return address.rpartition("/")[2]
