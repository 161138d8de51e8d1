"""A triggerer of Airflow, as far as its events: it stores each in the file of tests.processes.task_workers."""

import asyncio
import json
import os
import sys

from airflow.triggers.shared_stream import SharedStreamManager

from penstock.airflow.trigger import MessageTrigger
from tests.processes.task_workers import note


async def main() -> None:
    """Store the events of a channel, except for those whose body is an argument."""
    manager, trigger = SharedStreamManager(), MessageTrigger("events", "c")
    key = trigger.shared_stream_key()
    events = trigger.filter_shared_stream(manager.subscribe(trigger_id=1, trigger=trigger, key=key))
    async for event in events:
        body = event.payload["body"]
        note(f"begin {body}")
        sequence = manager.bind_pending_event(trigger_id=1, key=key)
        if body not in sys.argv:
            note(body)
            manager.confirm_persisted([sequence])


if __name__ == "__main__":
    found = {"conn_type": "penstock", "extra": {"nsqd": [os.environ["BROKER"]]}}
    os.environ["AIRFLOW_CONN_PENSTOCK_DEFAULT"] = json.dumps(found)
    asyncio.run(main())
