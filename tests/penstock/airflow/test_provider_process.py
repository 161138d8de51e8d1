"""The provider in Airflow, where that is installed: the trigger in Airflow's own manager of streams, and the sensor."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from penstock.client import Producer
from tests.daemons import Daemon, nsqd

streams = pytest.importorskip("airflow.triggers.shared_stream", reason="Airflow 3.3 is not installed (100 packages)")
pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("airflow")) as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def _connection(node: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"conn_type": "penstock", "extra": {"nsqd": [node.tcp]}}
    monkeypatch.setenv("AIRFLOW_CONN_PENSTOCK_DEFAULT", json.dumps(found))


def in_flight(node: Daemon, topic: str) -> int:
    answer = httpx.get(f"http://{node.http}/stats?format=json&topic={topic}").json()
    count: int = answer["topics"][0]["channels"][0]["in_flight_count"]
    return count


def test_a_message_is_in_flight_until_the_database_has_its_event(node: Daemon) -> None:
    from penstock.airflow.trigger import MessageTrigger

    with Producer(node.tcp) as producer:
        producer.publish("events", b"one")
        producer.publish("events", b"two")

    async def take(manager: Any) -> Any:
        trigger = MessageTrigger("events", "c")
        key = trigger.shared_stream_key()
        events = trigger.filter_shared_stream(manager.subscribe(trigger_id=1, trigger=trigger, key=key))
        return key, events, await anext(events)

    async def main() -> None:
        manager = streams.SharedStreamManager()
        key, events, first = await take(manager)
        sequence = manager.bind_pending_event(trigger_id=1, key=key)
        second = await anext(events)  # Airflow asks for the next one at once
        assert sorted([first.payload["body"], second.payload["body"]]) == ["one", "two"]
        assert in_flight(node, "events") == 2
        manager.bind_pending_event(trigger_id=1, key=key)
        manager.confirm_persisted([sequence])
        while in_flight(node, "events") != 1:
            await asyncio.sleep(0.01)
        await manager.stop_all()  # as if the triggerer ended before the second event was stored
        manager = streams.SharedStreamManager()
        _, _, again = await take(manager)
        assert (again.payload["id"], again.payload["attempts"]) == (second.payload["id"], 2)
        await manager.stop_all()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_scheme_names_the_trigger() -> None:
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    trigger = MessageQueueTrigger(scheme="penstock", topic="t", channel="c")
    arguments = {"topic": "t", "channel": "c", "conn_id": "penstock_default"}
    assert trigger.serialize() == ("penstock.airflow.trigger.MessageTrigger", arguments)


def test_a_sensor_returns_a_message_or_pokes_again(node: Daemon) -> None:
    from penstock.airflow.sensor import MessageSensor

    sensor = MessageSensor(task_id="wait", topic="sensed", channel="c", wait_s=0.1)
    assert not sensor.poke({})
    with Producer(node.tcp) as producer:
        producer.publish("sensed", b"x")
    sensor.wait_s = 30
    found = sensor.poke({})
    assert (bool(found), found.xcom_value["body"]) == (True, "x")
    assert in_flight(node, "sensed") == 0


def test_a_sensor_that_is_rescheduled_leaves_its_worker_until_a_message_has_come(node: Daemon) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSensorTimeout

    from penstock.airflow.sensor import MessageSensor

    first: list[Any] = [None]
    context = {"ti": SimpleNamespace(get_first_reschedule_date=lambda context: first[0])}

    def sensor(**more: Any) -> Any:  # each time a new one, as in another process
        return MessageSensor(task_id="wait", topic="later", channel="c", mode="reschedule", wait_s=0.1, **more)

    with pytest.raises(AirflowRescheduleException):
        sensor().execute(context)
    first[0] = datetime(2020, 1, 1, tzinfo=UTC)
    with pytest.raises(AirflowSensorTimeout):
        sensor(timeout=60).execute(context)
    with Producer(node.tcp) as producer:
        producer.publish("later", b"x")
    assert sensor(timeout=60).execute(context)["body"] == "x"
    assert in_flight(node, "later") == 0


def test_a_sensor_that_is_deferred_waits_in_the_triggerer_for_one_message(node: Daemon) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    from penstock.airflow.sensor import MessageSensor

    with Producer(node.tcp) as producer:
        producer.publish_many("deferred", [b"one", b"two"])
    sensor = MessageSensor(task_id="wait", topic="deferred", channel="c", deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    name, arguments = deferred.value.trigger.serialize()
    module, _, kind = name.rpartition(".")
    trigger = getattr(import_module(module), kind)(**arguments)  # as the triggerer makes it

    async def take(is_stopped: bool) -> Any:
        async with aclosing(trigger.run()) as events:
            event = await anext(events)
            if not is_stopped:
                assert [other async for other in events] == []
            return event.payload

    again = asyncio.run(take(is_stopped=True))
    taken = asyncio.run(take(is_stopped=False))
    assert getattr(sensor, deferred.value.method_name)({}, taken) == taken
    assert {again["body"], taken["body"]} <= {"one", "two"}
    answer = httpx.get(f"http://{node.http}/stats?format=json&topic=deferred").json()
    channel = answer["topics"][0]["channels"][0]
    assert (channel["depth"], channel["in_flight_count"]) == (1, 0)
