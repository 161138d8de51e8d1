"""The one error that an HTTP handler answers with."""


class HttpError(Exception):
    """The peer's fault, or the world's: a status and NSQ's word for it, e.g. 400 MISSING_ARG_TOPIC."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}
