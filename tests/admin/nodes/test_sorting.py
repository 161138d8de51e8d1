"""Tables that sort by every column, both ways."""

from urllib.parse import parse_qsl, urlencode

from admin.nodes.sorting import Column, Order, Table, arranged
from tests.cases import each

Fruit = tuple[str, int | None]
FRUITS: list[Fruit] = [("pear", 3), ("fig", None), ("apple", 7), ("kiwi", 3)]
COLUMNS: tuple[Column[Fruit], ...] = (
    Column("name", "Name", lambda one: one[0], is_text=True),
    Column("count", "Count", lambda one: one[1]),
)
TABLE, OTHER = Table(COLUMNS), Table(COLUMNS, "other", "count")


def names(table: Table[Fruit], **asked: str) -> list[str]:
    return [name for name, _ in table.sorted(FRUITS, asked)]


def test_both_ways_and_what_is_not_known_is_last() -> None:
    assert names(TABLE) == ["apple", "fig", "kiwi", "pear"]
    assert names(TABLE, order="desc") == ["pear", "kiwi", "fig", "apple"]
    assert names(TABLE, sort="count") == ["apple", "pear", "kiwi", "fig"]
    assert names(TABLE, sort="count", order="asc") == ["pear", "kiwi", "apple", "fig"]
    assert arranged([], lambda one: one, True) == []


@each("asked", [{"sort": "nope"}, {"sort": ""}, {"order": "up"}, {"sort": "__class__", "order": "DESC"}])
def test_what_is_asked_wrongly_is_ignored(asked: dict[str, str]) -> None:
    assert TABLE.order(asked) == Order("name", False)


def test_tables_of_one_page_do_not_disturb_each_other() -> None:
    assert OTHER.order({"sort": "name", "order": "asc"}) == Order("count", True)
    assert OTHER.order({"other_sort": "name"}) == Order("name", False)
    assert OTHER.heads({"sort": "count"})[0].link == {"sort": "count", "other_sort": "name", "other_order": ""}


def test_a_click_sorts_and_the_next_one_reverses() -> None:
    asked: dict[str, str] = {"q": "x", "page": "7", "live": "1", "did": "pause"}
    found = []
    for place in (1, 1, 0, 0, 1):
        head = TABLE.heads(asked)[place]
        asked = dict(parse_qsl(urlencode(head.link)))
        found.append((asked["sort"], asked.get("order"), [one.aria for one in TABLE.heads(asked)]))
    assert found == [
        ("count", None, ["", "descending"]), ("count", "asc", ["", "ascending"]), ("name", None, ["ascending", ""]),
        ("name", "desc", ["descending", ""]), ("count", None, ["", "descending"]),
    ]  # fmt: skip
    assert asked["q"] == "x"
    assert not {"page", "live", "did"} & asked.keys()


def test_a_table_with_an_order_of_its_own_shows_no_column_until_one_is_clicked() -> None:
    table = Table(COLUMNS, has_own_order=True)
    heads = table.heads({})
    assert [one.aria for one in heads] == ["", ""]
    assert heads[0].link == {"sort": "name", "order": ""}
    assert [one.aria for one in table.heads({"sort": "name"})] == ["ascending", ""]
