"""The exception that HTTP handlers answer requests with."""


class HttpError(Exception):
    """An error of the peer or of the environment: a status and NSQ's text for it, such as 400 MISSING_ARG_TOPIC."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}
