"""nsqadmin without a socket: requests go straight into the application; whom it asks is not there, or made up."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
from argon2 import PasswordHasher

from admin.daemon import application
from admin.options import AdminOptions
from admin.users import User, hashed, open_users, written
from shared.auth.keyring import Keyring
from shared.auth.tokens import digest
from shared.http.api import Api

NOWHERE = "127.0.0.1:1"  # nobody listens there
PASSWORD = "correct horse"
OURS = {"Origin": "http://admin"}  # a browser says that a page of ours has sent it
_CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_TLS = ssl.create_default_context()  # reading all authorities takes 50 ms of CPU

T = TypeVar("T")


def users_file(directory: Path, *users: User) -> str:
    """Write a users file that lists these users, and return its path."""
    path = directory / "users"
    path.write_text(written(users))
    path.chmod(0o600)
    return str(path)


def with_password(name: str, role: str, *topics: str) -> User:
    """Return a user who logs in with PASSWORD."""
    return User(name, role, topics or ("*",), _CHEAP.hash(PASSWORD))


def with_token(name: str, role: str, token: str, *topics: str) -> User:
    """Return a user who authenticates with this token."""
    return User(name, role, topics or ("*",), hashed(token))


def token(name: str) -> str:
    """Return the token that `auth_file` gives to a name."""
    return "pst_" + name.ljust(43, "_")


def bearer(name: str) -> dict[str, str]:
    """Return the headers of a request that shows this token."""
    return {"Authorization": f"Bearer {token(name)}"}


def entry(name: str, roles: Iterable[str], kind: str = "user", proof: str = "token", more: str = "") -> str:
    """Return the entry of somebody in an auth file, with PASSWORD, the token of this name, or nothing but a "proxy"."""
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
    told = AdminOptions(**{"nsqd_http_address": (NOWHERE,)} | options)
    return application(told, _TLS, users_of(told)).api


def made_later(application: Callable[[], Api]) -> Callable[..., Awaitable[None]]:
    """Return an application that is made with the first request, in the event loop of whoever asks."""
    made: list[Api] = []

    async def answer(*request: Any) -> None:
        made[:] = made or [application()]
        await made[0](*request)

    return answer


def users_of(options: AdminOptions) -> Keyring | None:
    """The users of an nsqadmin whose file is looked after all the time, where the daemon does it once a second."""

    class Watched:
        def __getattr__(self, name: str) -> Any:
            assert keyring is not None
            keyring.look_after()
            return getattr(keyring, name)

    keyring = open_users(options)
    return cast(Keyring, Watched()) if keyring is not None else None


def browser(app: Callable[..., Awaitable[None]], address: str = "127.0.0.1", **headers: str) -> httpx.AsyncClient:
    """Somebody at that address. It follows no redirect."""
    transport = httpx.ASGITransport(app, client=(address, 5555))
    return httpx.AsyncClient(transport=transport, base_url="http://admin", headers=headers)


def in_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Run the coroutine in a new event loop, and return its result."""

    async def run() -> T:
        return await work()

    return asyncio.run(run())


async def log_in(client: httpx.AsyncClient, name: str, password: str = PASSWORD, following: str = "") -> httpx.Response:
    """Send the login form, and return nsqadmin's answer."""
    form = {"user": name, "password": password, "next": following}
    return await client.post("/login", data=form, headers=OURS)
