"""nsqadmin without a socket: requests call the application directly, and its nodes are absent or fake."""

import asyncio
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
from argon2 import PasswordHasher

from admin.daemon import application
from admin.options import AdminOptions
from shared.auth.keyring import Keyring
from shared.auth.tokens import digest
from shared.http.api import Api
from tests.auth_files import bearer as bearer
from tests.auth_files import token as token

NOWHERE = "127.0.0.1:1"  # no server listens there
PASSWORD = "correct horse"
OURS = {"Origin": "http://admin"}  # a browser says that a page of ours has sent it
_CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_TLS = ssl.create_default_context()  # reading all authorities takes 50 ms of CPU

T = TypeVar("T")


def file_of(directory: Path, *entries: str) -> str:
    """Write an auth file with these entries, and return its path."""
    return auth_file(directory, "".join(entries))


def with_password(name: str, role: str, *topics: str) -> str:
    """Return the entry of a user with PASSWORD; without patterns of topics, of all topics."""
    return entry(name, [role], proof="password", more=f"topics = {list(topics)}" if topics else "")


def entry(name: str, roles: Iterable[str], kind: str = "user", proof: str = "token", more: str = "") -> str:
    """Return an entry of an auth file, with PASSWORD, the token of this name, or neither for a "proxy"."""
    secrets = {
        "password": f'password = "{_CHEAP.hash(PASSWORD)}"\n',
        "token": f'sha256 = "{digest(token(name).encode())}"\n',
        "proxy": "",
    }
    words = ", ".join(f'"{role}"' for role in roles)
    return f'[[{kind}]]\nname = "{name}"\nroles = [{words}]\n{secrets[proof]}{more}\n'


def auth_file(directory: Path, text: str = "", **robots: Iterable[str]) -> str:
    """Write an auth file of this text and of users with these roles and tokens, and return its path."""
    path = directory / "auth.toml"
    path.write_text(text + "".join(entry(name, roles) for name, roles in robots.items()))
    path.chmod(0o600)
    return str(path)


def make(**options: Any) -> Api:
    """The application. Call it in an event loop."""
    given = AdminOptions(**{"nsqd_http_address": (NOWHERE,)} | options)
    return application(given, _TLS, users_of(given)).api


def made_later(application: Callable[[], Api]) -> Callable[..., Awaitable[None]]:
    """Return an application that is made with the first request, in the event loop of the caller."""
    made: list[Api] = []

    async def answer(*request: Any) -> None:
        made[:] = made or [application()]
        await made[0](*request)

    return answer


def users_of(options: AdminOptions) -> Keyring | None:
    """The users of an nsqadmin whose file is looked after all the time, where the daemon does it once a second."""

    class Watched:
        def __getattr__(self, name: str) -> Any:
            keyring.reload_if_changed()
            return getattr(keyring, name)

    if not options.auth_file:
        return None
    keyring = Keyring(options.auth_file, time.time)
    return cast(Keyring, Watched())


def browser(app: Callable[..., Awaitable[None]], address: str = "127.0.0.1", **headers: str) -> httpx.AsyncClient:
    """A browser at that address. It follows no redirect."""
    transport = httpx.ASGITransport(app, client=(address, 5555))
    return httpx.AsyncClient(transport=transport, base_url="http://admin", headers=headers)


def visiting(*nodes: str, **options: Any) -> httpx.AsyncClient:
    """A browser of an nsqadmin of these nodes, which is made with the first request."""
    given = {"nsqd_http_address": nodes or (NOWHERE,)} | options
    return browser(made_later(lambda: make(**given)), **OURS)


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def in_loop(work: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        return await work()

    return asyncio.run(run())


def csrf_in(page: str) -> str:
    """Return the session's word in the forms of a page; "" if it has none."""
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    return found[1] if found else ""


async def log_in(client: httpx.AsyncClient, name: str, password: str = PASSWORD, following: str = "") -> httpx.Response:
    form = {"user": name, "password": password, "next": following}
    return await client.post("/login", data=form, headers=OURS)
