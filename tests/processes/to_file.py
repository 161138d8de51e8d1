"""Helpers for the tests of nsq_to_file as a process."""

import contextlib
import gzip
from pathlib import Path

import httpx

from tests.daemons import Daemon, our_command, post

OURS = our_command("nsq_to_file")
QUICK = ("-sync-interval", "200ms")


def lines(*directories: Path) -> list[str]:
    """All lines of all files, file by file in the order of names; without a gzip member that was cut, and a file that moves."""
    found = []
    for directory in directories:
        for path in sorted(directory.rglob("*")) if directory.exists() else ():
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                found += content(path).decode().splitlines()
    return found


def content(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    read = bytearray()
    with gzip.open(path) as file, contextlib.suppress(EOFError):
        while part := file.read(1024):
            read += part
    return bytes(read)


def waiting(node: Daemon, topic: str = "t", channel: str = "nsq_to_file") -> int:
    """How many messages the channel still has."""
    return _count(node, topic, channel, "depth", "in_flight_count", "deferred_count")


def consumers(node: Daemon, topic: str = "t", channel: str = "nsq_to_file") -> int:
    return _count(node, topic, channel, "client_count")


def _count(node: Daemon, topic: str, channel: str, *names: str) -> int:
    arguments = f"format=json&topic={topic}&channel={channel}&include_clients=false"
    topics = httpx.get(f"http://{node.http}/stats?{arguments}").json()["topics"]
    channels = topics[0]["channels"] if topics else []
    return sum(one[name] for one in channels for name in names)


def make_channel(node: Daemon, *channels: str, topic: str = "t") -> None:
    post(node, "/topic/create", topic=topic)
    for channel in channels or ("nsq_to_file",):
        post(node, "/channel/create", topic=topic, channel=channel)


def numbers(count: int) -> list[str]:
    return [f"message-{number:05}" for number in range(count)]
