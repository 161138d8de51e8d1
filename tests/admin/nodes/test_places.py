"""Where nsqadmin asks a node that it knows by an address."""

from admin.nodes.places import MOST, Places


def test_a_node_is_asked_where_it_is_known_unless_https_is_wanted() -> None:
    places = Places()
    places.note_port("a:1", 9)
    places.note_base("b:1", "http://elsewhere:1")
    assert [places.base(one) for one in ("a:1", "b:1", "https://c:1")] == ["http://a:1", "http://b:1", "https://c:1"]


def test_a_node_that_was_given_with_https_is_asked_there() -> None:
    places = Places()
    places.note_base("box:0", "https://node:4152")
    assert places.base("box:0") == "https://node:4152"


def test_nodes_that_nsqlookupd_names_are_asked_by_https_only() -> None:
    places = Places(lambda: ("lookup:4161",), https_only=True)
    places.note_port("a:4151", 4152)
    places.note_port("[::1]:4151", 4152)
    places.note_port("old:4151", 0)
    places.note_port("odd:4151", 65536)
    places.note_port("lookup:4161", 666)  # a node may say that it is where nsqlookupd is
    assert [places.base(one) for one in ("a:4151", "[::1]:4151")] == ["https://a:4152", "https://[::1]:4152"]
    assert [places.base(one) for one in ("old:4151", "odd:4151", "unheard:4151")] == ["", "", ""]
    assert [places.base(one) for one in ("lookup:4161", "https://l:1")] == ["http://lookup:4161", "https://l:1"]


def test_no_more_nodes_than_a_cluster_can_have_are_remembered() -> None:
    places = Places(https_only=True)
    for number in range(MOST + 1):
        places.note_port(f"node{number}:1", 2)
    assert [places.base("node0:1"), places.base("node1:1")] == ["", "https://node1:2"]
