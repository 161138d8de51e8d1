"""A process with an object store in memory that speaks as much of S3's protocol as Delta's library needs; it may fail.

It shows what the library and we do with answers, not what Amazon's store does. It is a process, because the library keeps
Python from running while it waits for a store.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import httpx
import pytest

BUCKET, CONTROL = "bucket", "control"
_WHEN = "2026-11-21T10:00:00.000Z"


class ObjectStore:
    """A store that runs, as tests see it."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/{CONTROL}"

    def fail(self, *refusals: tuple[int, str]) -> None:
        """Have the next requests fail, with these statuses and codes."""
        self._set(refusals=refusals)

    def remove(self, *keys: str) -> None:
        """Remove objects."""
        self._set(removed=keys)

    def ignore_conditions(self) -> None:
        """Let the second writer of an object win."""
        self._set(is_conditional=False)

    def _set(self, **state: Any) -> None:
        httpx.put(self._url, json=state).raise_for_status()

    def state(self) -> dict[str, Any]:
        """Return the keys of the objects, and the refusals that are left."""
        found: dict[str, Any] = httpx.get(self._url).raise_for_status().json()
        return found


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Serve a store, to which AWS_* point."""
    command = (sys.executable, "-m", "tests.pipeline.object_store")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        for name, value in {
            "ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "secret", "REGION": "here", "ALLOW_HTTP": "true", "ENDPOINT_URL": url,
        }.items():  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        try:
            yield ObjectStore(url)
        finally:
            process.kill()


class _Store:
    """The objects of one bucket, by key, in the process that serves them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.refusals: list[tuple[int, str]] = []
        self.is_conditional = True
        self.lock = threading.Lock()

    def put(self, key: str, data: bytes, *, must_be_new: bool) -> bool:
        """Return False if the object exists and must not."""
        with self.lock:
            if must_be_new and self.is_conditional and key in self.objects:
                return False
            self.objects[key] = data
            return True


class _Handler(BaseHTTPRequestHandler):
    store = _Store()
    protocol_version, wbufsize = "HTTP/1.1", 65536  # an answer is one packet

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def _answer(self, status: int, body: bytes | str = b"", **headers: str) -> None:
        sent = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {"Content-Length": str(len(sent)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(
            status, f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>as the test wants</Message></Error>"
        )

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        place = urlsplit(self.path)
        bucket, _, key = unquote(place.path).lstrip("/").partition("/")
        asked = dict(parse_qsl(place.query, keep_blank_values=True))
        if bucket == CONTROL:
            if body:
                vars(self.store).update(json.loads(body))
                for one in self.store.__dict__.pop("removed", ()):
                    del self.store.objects[one]
            self._answer(200, json.dumps({"keys": list(self.store.objects), "refusals": self.store.refusals}))
        elif self.store.refusals:
            self._refuse(*self.store.refusals.pop(0))
        elif bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        else:
            getattr(self, f"_{self.command.lower()}")(key, asked, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _get(self, key: str, asked: dict[str, str], body: bytes) -> None:
        found = self.store.objects.get(key)
        if not key:
            self._list(asked)
        elif found is None:
            self._refuse(404, "NoSuchKey")
        else:
            self._send(found)

    _head = _get

    def _send(self, found: bytes) -> None:
        headers = {"ETag": _etag(found), "Last_Modified": "Sat, 21 Nov 2026 10:00:00 GMT"}
        part = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            self._answer(200, found, **headers)
            return
        first = int(part[1]) if part[1] else max(0, len(found) - int(part[2]))
        end = min(len(found), int(part[2]) + 1) if part[1] and part[2] else len(found)
        self._answer(206, found[first:end], Content_Range=f"bytes {first}-{end - 1}/{len(found)}", **headers)

    def _list(self, asked: dict[str, str]) -> None:
        prefix, after = asked.get("prefix", ""), asked.get("start-after", "")
        keys = [one for one in sorted(self.store.objects) if one.startswith(prefix) and one > after]
        folders = set[str]()
        if delimiter := asked.get("delimiter"):
            folders = {
                prefix + one[len(prefix) :].partition(delimiter)[0] + delimiter
                for one in keys
                if delimiter in one[len(prefix) :]
            }
            keys = [one for one in keys if delimiter not in one[len(prefix) :]]
        listed = "".join(
            f"<Contents><Key>{escape(one)}</Key><LastModified>{_WHEN}</LastModified><Size>{len(self.store.objects[one])}</Size>"
            f"<ETag>{escape(_etag(self.store.objects[one]))}</ETag></Contents>"
            for one in keys
        )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}{common}</ListBucketResult>")

    def _put(self, key: str, asked: dict[str, str], body: bytes) -> None:
        if "partNumber" in asked:
            self.store.uploads[asked["uploadId"]][int(asked["partNumber"])] = body
        elif not self.store.put(key, body, must_be_new="If-None-Match" in self.headers):
            self._refuse(412, "PreconditionFailed")
            return
        self._answer(200, ETag=_etag(body))

    def _post(self, key: str, asked: dict[str, str], body: bytes) -> None:
        if "delete" in asked:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for one in map(unescape, keys):
                self.store.objects.pop(one, None)
            self._answer(
                200, f"<DeleteResult>{''.join(f'<Deleted><Key>{one}</Key></Deleted>' for one in keys)}</DeleteResult>"
            )
        elif "uploads" in asked:
            name = uuid.uuid4().hex
            self.store.uploads[name] = {}
            self._answer(
                200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
        else:
            data = b"".join(part for _, part in sorted(self.store.uploads.pop(asked["uploadId"]).items()))
            self.store.put(key, data, must_be_new=False)
            self._answer(
                200,
                f"<CompleteMultipartUploadResult><ETag>{escape(_etag(data))}</ETag></CompleteMultipartUploadResult>",
            )

    def _delete(self, key: str, asked: dict[str, str], body: bytes) -> None:
        self.store.uploads.pop(asked.get("uploadId", ""), None)
        self.store.objects.pop(key, None)
        self._answer(204)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
