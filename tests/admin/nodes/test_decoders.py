"""Bodies that are decoded layer by layer, and those that only look as if they could be."""

import base64
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Iterator

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from admin.nodes.decoders import MOST_DEPTH, MOST_LEAF, MOST_NODES, MOST_OUTPUT, TreeNode, decode, text_of, tree_of
from tests.cases import each

OBJECT = {"order": 7, "lines": [{"sku": "a", "n": 2}], "paid": True, "note": None}
TEXT = json.dumps(OBJECT).encode()


def nodes(tree: TreeNode) -> Iterator[TreeNode]:
    yield tree
    for child in tree.children:
        yield from nodes(child)


def packed(data: bytes) -> bytes:
    """Compress without the time, which would make the names of tests differ."""
    return gzip.compress(data, mtime=0)


@each("body, words", [
    (TEXT, "JSON"), (packed(TEXT), "gzip > JSON"), (zlib.compress(TEXT), "zlib > JSON"),
    (base64.b64encode(TEXT), "base64 > JSON"), (base64.encodebytes(TEXT * 1), "base64 > JSON"),
    (base64.b64encode(packed(TEXT)), "base64 > gzip > JSON"),
    (base64.b64encode(zlib.compress(TEXT)), "base64 > zlib > JSON"),
    (packed(packed(b"plain words")), "gzip > gzip > text"), (packed(bytes(range(256))), "gzip > binary"),
    (msgpack.packb(OBJECT), "msgpack"), (packed(msgpack.packb(OBJECT)), "gzip > msgpack"),
    (base64.b64encode(b"plain words, and more of them"), "base64 > text"),
])  # fmt: skip
def test_layers_are_found_from_the_outermost_on(body: bytes, words: str) -> None:
    found = decode(body)
    assert (found.words, found.is_cut) == (words, False)
    if words.endswith(("JSON", "msgpack")):
        assert found.tree == tree_of(OBJECT)


@each("body", [
    b"", b"17", b"plain words",
    b"0123456789abcdef0123",  # an id, whose bytes as base64 are nothing known
    b"A" * 15, b"{not json", b"\x1f\x8b\x08 is no gzip", b"x\x9c is no zlib", b"\xff\xfe\0",
    b"\x80",  # an empty map of msgpack, or any other byte
    msgpack.packb(OBJECT) + b"more", "\u03b1\u03b2\u03b3".encode(),
])  # fmt: skip
def test_what_is_nothing_known_is_left_as_it_is(body: bytes) -> None:
    assert decode(body) is None


def test_the_tree_has_keys_values_and_kinds() -> None:
    tree = tree_of(OBJECT)
    assert [(node.key, node.value) for node in nodes(tree)] == [
        ("", "{4}"), ("order", "7"), ("lines", "[1]"), ("0", "{2}"), ("sku", '"a"'), ("n", "2"), ("paid", "true"),
        ("note", "null"),
    ]  # fmt: skip


def test_msgpack_has_more_kinds_of_values() -> None:
    packed = msgpack.packb({1: b"\xff\0", "t": msgpack.Timestamp(7, 5), "e": msgpack.ExtType(3, b"abc")})
    found = decode(packed)
    assert {node.key: node.value for node in found.tree.children} == {
        "1": "2 bytes: ff 00", "t": "time 7.000000005 s", "e": "extension 3, 3 bytes: 61 62 63",
    }  # fmt: skip


def test_bombs_are_cut_and_msgpack_that_claims_much_gets_little() -> None:
    deep = b"\xdd\x00\x00\xff\xff" * 1000  # arrays in arrays, each of 65,535 elements as it says
    bombs = [pack(b"x" * 100 * MOST_OUTPUT) for pack in (gzip.compress, zlib.compress)]
    for bomb, most in (*((bomb, 20 * MOST_OUTPUT) for bomb in bombs), (deep, 1_000_000)):
        tracemalloc.start()
        found = decode(bomb)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found is None if bomb is deep else (len(found.text), found.is_cut) == (MOST_OUTPUT, True)
        assert peak < most


def test_a_tree_is_bounded() -> None:
    wide = tree_of(list(range(MOST_NODES * 10)))
    assert len(list(nodes(wide))) <= MOST_NODES
    assert len(wide.children) + wide.left == MOST_NODES * 10
    deep: object = 1
    for _ in range(50):
        deep = [deep]
    tree, depth = tree_of(deep), 0
    while tree.children:
        (tree,), depth = tree.children, depth + 1
    assert (depth, tree.left) == (MOST_DEPTH, 1)
    assert len(tree_of(["x" * 10_000]).children[0].value) < MOST_LEAF + 10
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in tree_of(["\N{RIGHT-TO-LEFT OVERRIDE}"]).children[0].value


def test_a_body_without_its_end_is_decompressed_as_far_as_it_goes() -> None:
    body = gzip.compress(bytes(f"{OBJECT} " * 3000, "ascii"), mtime=0)
    found = decode(body[: len(body) // 2], is_cut=True)
    assert (found.words, found.is_cut) == ("gzip > text", True)
    assert found.text.startswith("{'order'")
    assert decode(TEXT[:-1], is_cut=True) is None
    assert text_of("\u03b1\u03b2".encode()[:3], is_cut=True) == "\u03b1"
    assert text_of("\u03b1\u03b2".encode()[:3]) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text() | st.binary(),
    lambda one: st.lists(one) | st.dictionaries(st.text() | st.integers(0, 100), one),
    max_leaves=20,
)
PACKERS = st.lists(st.sampled_from([gzip.compress, zlib.compress, base64.b64encode]), max_size=5)


@given(st.binary(max_size=300) | VALUES.map(lambda one: bytes(msgpack.packb(one))), PACKERS, st.data())
def test_whatever_a_body_is_it_is_decoded_or_not(body: bytes, packers: list[object], data: st.DataObject) -> None:
    for pack in packers:
        body = pack(body)  # type: ignore[operator]
    size = data.draw(st.integers(0, len(body)))
    flipped = body[:size] + data.draw(st.binary(max_size=3)) + body[size:]
    for one, is_cut in ((body, False), (body[:size], True), (flipped, False)):
        found = decode(one, is_cut)
        if found is not None:
            assert all(letter.isprintable() or letter in "\n\t" for letter in found.text)
            if found.tree is not None:
                assert len(list(nodes(found.tree))) <= MOST_NODES
