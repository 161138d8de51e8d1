"""Where a lake is: a directory, or a bucket of Amazon S3, Google Cloud Storage or Azure. Its tables are below it.

    data/lake    s3://bucket/lake    gs://bucket/lake    az://container/lake

Credentials come from the environment variables of the cloud, such as AWS_ACCESS_KEY_ID, which Delta's library reads.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

SCHEMES = ("s3", "gs", "az")
MESSAGES, ROLLUP, DELIVERIES = "messages", "rollup", "deliveries"  # tables
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/{1,2}(.*)")


# Errors of Delta's library are trees of lines with colors, arrows, XML of a store, and queries of URLs, which may be signed.
_DECORATION = re.compile(r"\x1b\[[\d;]*m|↳|(?<=\S)\?[\w-]+=\S*|, max_retries\n.*\n.*?(?= - )|:?\s+0: <unknown>[\s\S]*")
_REFUSED = re.compile(r"<\?xml.*?<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?.*", re.DOTALL)
_LONGEST = 500  # characters of a reason


class LakeError(Exception):
    """One line that says what is wrong, and what to do."""


class StoreError(LakeError):
    """The store of a lake does not answer, or refuses, which may end by itself."""


def one_line(error: BaseException) -> str:
    """Return the text of an error of Delta's library or of a store in one line."""
    text = _REFUSED.sub(r"\1 \2", _DECORATION.sub("", str(error)))
    parts = (" ".join(line.split()) for line in text.splitlines())
    return ": ".join(part for part in parts if part)[:_LONGEST] or type(error).__name__


@dataclass(frozen=True, slots=True)
class Lake:
    """The location of a lake: a directory, or a bucket with a prefix."""

    url: str  # an absolute path, or a URL; without a slash at its end

    @property
    def is_directory(self) -> bool:
        """Return True if the lake is a directory of this machine."""
        return self.url.startswith("/")

    def table(self, name: str) -> str:
        """Return the path or URL of a table."""
        return f"{self.url}/{name}"


def lake_at(text: str) -> Lake:
    """Return the lake at a directory or a URL. Raises LakeError for a scheme that is not supported."""
    if not text or not text.isprintable():
        raise LakeError(f"{text!r} is not a directory or a URL")
    match = _URL.fullmatch(text)
    if match is None:
        return Lake(os.path.abspath(text))
    scheme, path = match[1].lower(), match[2].rstrip("/")
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        hint = "; write s3://" if scheme in ("s3a", "s3n") else ""
        raise LakeError(f"{text!r}: a lake is a directory, or begins with {known}{hint}")
    if not path.partition("/")[0]:
        raise LakeError(f"{text!r} names no bucket")
    return Lake(f"{scheme}://{path}")
