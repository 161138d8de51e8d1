"""The form that edits a message and publishes it again, as a new message of the same topic at the same node."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from starlette.requests import Request

from admin.messages.actions import Actions
from admin.messages.browsing import Browsing, one_number
from admin.nodes.decoders import text_of
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import body_of, message_view
from admin.output.error_pages import Partly
from admin.output.form_state import FieldError
from admin.output.layout import Fields, Form, parameters
from admin.output.requests import forgetting, headers_of
from admin.output.site import Site
from admin.users.access import check_action, who_asks
from shared.http.api import Routes
from shared.http.errors import HttpError

MOST_EDITED = 256 * 1024  # bytes of a body that fits into a form, whose characters may take three bytes each
TEXT, BASE64 = "text", "base64"
PATH = "/republish/{topic}/{channel}"


@dataclass(slots=True)
class Republish:
    """The page with the form, and its action."""

    site: Site
    actions: Actions
    browsing: Browsing

    def routes(self) -> Routes:
        """Return the handlers of every path, by method."""
        edit = self.site.renderer.page_handler(self.edit)
        publish = self.site.renderer.form_handler(forgetting(self.site.queries.cache, self.publish), PATH, edit)
        return {PATH: {"GET": edit, "POST": publish}}

    async def edit(self, request: Request) -> Fields:
        """Show the form, filled in with the body and the headers of a message."""
        node, named = await self.browsing.one_message(request)
        topic, channel = named["topic"], named["channel"]
        found = await self.site.queries.direct.get_object(node, "/channel/message", named | {"format": "json"})
        message, body = message_view(found), body_of(found)
        if message["body_size"] > MOST_EDITED or len(body) != message["body_size"]:
            limit = f"{MOST_EDITED // 1024} KiB"
            raise HttpError(413, f"A body of more than {limit} cannot be edited here. Download it instead.")
        encoding = encoding_of(body)
        return {
            "page_of": "republish", "title": f"Edit and publish to {topic}",
            "topic_name": topic, "name": channel, "node": node, "offset": named["offset"],
            "message": message, "encoding": encoding,
            "body": body.decode() if encoding == TEXT else base64.b64encode(body).decode(),
            "headers": "\n".join(f"{name}: {value}" for name, value in message["headers"].items()),
            "may_finish": who_asks(request).may("finish", topic, channel),
        }  # fmt: skip

    async def publish(self, request: Request, form: Form) -> str:
        """Publish the message in the form, and then finish the original one if that is wanted."""
        _, topic, channel = parameters(request, self.site.options, 3)
        who, node, actor = who_asks(request), form.get("node", ""), self.site.access.actor(request)
        check_action(who, "publish", topic)
        finishes = bool(form.get("finish"))
        if finishes:
            check_action(who, "finish", topic, channel)
        offset = one_number(form.get("offset", ""), "offset")
        await self.site.queries.carrying(topic, node)
        body = body_in(form)
        sent = {f"X-Nsq-Header-{name}": value for name, value in headers_of(form.get("headers", ""))}
        asked = {"topic": topic, "channel": channel, "offset": offset}
        await self.actions.at_node("republish", node, "/pub", {"topic": topic, "id": "true"}, actor, body, sent)
        if finishes:
            try:
                await self.actions.at_node("finish", node, "/channel/messages/finish", asked, actor, counted="finished")
            except UpstreamError as failure:
                raise Partly([f"The message was published, but the original was not finished: {failure}"]) from None
        return self.site.renderer.url("messages", topic, channel, node=node, did="republish")


def encoding_of(body: bytes) -> str:
    """Return the encoding of a body in a form: text, unless a browser would change it, or else base64."""
    return BASE64 if b"\r" in body or b"\0" in body or text_of(body) is None else TEXT


def body_in(form: Form) -> bytes:
    """Return the body that a form has. Browsers send each end of a line as CR LF. Raises HttpError 400."""
    text = form.get("body", "")
    if form.get("encoding") == BASE64:
        try:
            body = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise FieldError("body", "Body must be base64.") from None
    else:
        body = text.replace("\r\n", "\n").encode()
    if not body:
        raise FieldError("body", "Body must not be empty.")
    return body
