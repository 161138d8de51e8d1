"""Connections look again who their clients are when the auth file has changed."""

from types import SimpleNamespace

import pytest
import trio

from nsqd.tasks import rights_task
from nsqd.tasks.rights_task import watch_rights


async def test_all_connections_are_notified_of_a_change_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights_task, "EVERY", 0)
    changes, notified = [False, True, False, True], []
    done = trio.Event()

    def reload_if_changed() -> bool:
        if not changes:
            trio.from_thread.run_sync(done.set)
            return False
        return changes.pop(0)

    peers = [SimpleNamespace(rights_changed=lambda name=name: notified.append(name)) for name in "ab"]
    async with trio.open_nursery() as nursery:
        keyring = SimpleNamespace(reload_if_changed=reload_if_changed)
        nursery.start_soon(watch_rights, keyring, lambda: peers, lambda: notified.append("turn"))
        await done.wait()
        nursery.cancel_scope.cancel()
    assert notified == ["a", "b", "turn"] * 2
