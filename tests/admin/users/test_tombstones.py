"""A tombstone is shown for a day, to users who see its topic."""

from admin.users.roles import Who, of_role
from admin.users.tombstones import MOST, SHOWN, Tombstones
from tests.admin.asking import visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio

ANN = Who(of_role("ann", "admin"))
VIC = Who(of_role("vic", "viewer", ("eu.*",)))


def test_the_newest_first_once_each_and_for_a_day() -> None:
    now = [1000.0]
    tombstones = Tombstones(lambda: now[0])
    for topic, node in (("eu.a", "n:1"), ("us.b", "n:2"), ("eu.a", "n:1")):
        now[0] += 1
        tombstones.add(topic, node, "ann")
    assert [(one.topic, one.node, one.at) for one in tombstones.seen_by(ANN)] == [
        ("eu.a", "n:1", 1003.0), ("us.b", "n:2", 1002.0),
    ]  # fmt: skip
    assert [one.topic for one in tombstones.seen_by(VIC)] == ["eu.a"]
    assert [one.topic for one in tombstones.seen_by(ANN, "n:2")] == ["us.b"]
    now[0] += SHOWN - 1
    assert [one.topic for one in tombstones.seen_by(ANN)] == ["eu.a"]
    for number in range(2 * MOST):
        tombstones.add(f"t{number}", "n:1", "ann")
    assert len(tombstones.seen_by(ANN)) == MOST


@on_asyncio
async def test_the_pages_of_nodes_show_it() -> None:
    with a_node() as node:
        client, at = visiting(nsqd_http_address=(), lookupd_http_address=(node,)), f"/nodes/{node.replace(':', '%3A')}"
        assert "Tombstoned topics" not in (await client.get("/nodes")).text
        done = await client.post(at, data={"action": "tombstone", "topic": "t", "confirm": "t"})
        assert done.status_code == 303, done.text
        for path in (at, "/nodes"):
            page = (await client.get(path)).text
            assert '<th scope="row" data-label="Topic">t</th>' in page[page.index("Tombstoned topics") :], path
