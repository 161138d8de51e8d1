"""Connections look again who their clients are when the auth file has changed."""

from types import SimpleNamespace

import pytest
import trio

from nsqd.tasks import rights_task
from nsqd.tasks.rights_task import watch_rights


async def test_all_connections_are_told_of_a_change_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights_task, "EVERY", 0)
    changes, told = [False, True, False, True], []
    done = trio.Event()

    def look_after() -> bool:
        if not changes:
            trio.from_thread.run_sync(done.set)
            return False
        return changes.pop(0)

    peers = [SimpleNamespace(rights_changed=lambda name=name: told.append(name)) for name in "ab"]
    async with trio.open_nursery() as nursery:
        keyring = SimpleNamespace(look_after=look_after)
        nursery.start_soon(watch_rights, keyring, lambda: peers, lambda: told.append("turn"))
        await done.wait()
        nursery.cancel_scope.cancel()
    assert told == ["a", "b", "turn"] * 2
