"""Decoders of message bodies, layer by layer, such as gzip > JSON. Pure.

Bodies are hostile input: output, depth, nodes and memory are bounded, and a body that cannot be decoded is left as it is.
A body whose end is missing is decompressed up to there, but its JSON or msgpack cannot be parsed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgpack

from shared.counted import counted
from shared.http.bounded import AnswerError, parse_json
from shared.text import without_surrogates

MOST_LAYERS = 4
MOST_OUTPUT = 64 * 1024  # bytes that a layer may give; the rest is cut off
MOST_PARSED = 8 * MOST_OUTPUT  # bytes of memory that a body may take as JSON
MOST_ITEMS = 2048  # of one array or map of msgpack: its reader allocates for as many as the body claims, on each level
MOST_NODES, MOST_DEPTH = 200, 12  # of a tree that is shown
MOST_LEAF = 500  # characters of a key or value in a tree
LEAST_BASE64 = 16  # characters: shorter words are base64 by chance
_BASE64 = re.compile(rb"[A-Za-z0-9+/\r\n]+={0,2}\s*")
_GZIP, _CONTAINERS = b"\x1f\x8b\x08", (*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF)


@dataclass(slots=True)
class TreeNode:
    """A value in a tree of JSON or msgpack. A leaf has its value as text, an inner node has children."""

    key: str
    value: str
    children: list[TreeNode] = field(default_factory=list)
    left: int = 0  # children that are not shown


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body as the page of a message shows it: its layers, and the value in the innermost."""

    chain: tuple[str, ...]  # names of the layers, the outermost first
    tree: TreeNode | None  # of JSON or msgpack
    text: str  # if it is text after the last layer, and no tree
    is_cut: bool  # the end is missing

    @property
    def words(self) -> str:
        """The layers as text, such as gzip > JSON."""
        return " > ".join(self.chain)


def decode(body: bytes, is_cut: bool = False) -> Decoded | None:
    """Return the decoded body, or None if it is plain text or of no known format. `is_cut`: its end is missing."""
    chain: list[str] = []
    while len(chain) < MOST_LAYERS:
        if (tree := _tree_of(body, is_cut)) is not None:
            return Decoded((*chain, tree[0]), tree[1], "", is_cut)
        layer = _unpacked(body, is_cut)
        if layer is None:
            break
        name, body, is_cut = layer
        chain.append(name)
    if not chain:
        return None
    text = text_of(body, is_cut)
    return Decoded((*chain, "text" if text is not None else "binary"), None, printable(text or ""), is_cut)


def text_of(body: bytes, is_cut: bool = False) -> str | None:
    """Return the body as text, or None if it is binary. `is_cut`: its last character may be incomplete."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        if not (is_cut and error.start >= len(body) - 3 and error.reason == "unexpected end of data"):
            return None
        text = body[: error.start].decode()
    strange = sum(not one.isprintable() and one not in "\n\r\t" for one in text)
    return None if strange * 10 > len(text) else text


def printable(text: str) -> str:
    """Return the text with the replacement character for what cannot be printed."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def _tree_of(body: bytes, is_cut: bool) -> tuple[str, TreeNode] | None:
    """Return the name and the tree of a body that is JSON or msgpack: an object, a map, or a list."""
    if is_cut or not body:
        return None
    data: Any
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            data = parse_json(body, MOST_PARSED)
        except AnswerError:
            return None
        return ("JSON", tree_of(data)) if isinstance(data, dict | list) else None
    if body[0] not in _CONTAINERS or len(body) > MOST_OUTPUT:
        return None
    try:
        data = msgpack.unpackb(
            body, raw=False, strict_map_key=False, max_array_len=MOST_ITEMS, max_map_len=MOST_ITEMS, max_ext_len=MOST_OUTPUT
        )  # fmt: skip
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException):  # TypeError: a key that is a list
        return None
    return ("msgpack", tree_of(data)) if data and isinstance(data, dict | list) else None


def _unpacked(body: bytes, is_cut: bool) -> tuple[str, bytes, bool] | None:
    """Return the name of the outermost layer, its content, and whether the end is missing."""
    if body.startswith(_GZIP):
        return _inflated("gzip", body, zlib.MAX_WBITS | 16)
    if len(body) > 2 and body[0] & 0x0F == 8 and body[0] >> 4 <= 7 and int.from_bytes(body[:2], "big") % 31 == 0:
        return _inflated("zlib", body, zlib.MAX_WBITS)
    return _from_base64(body, is_cut)


def _inflated(name: str, body: bytes, bits: int) -> tuple[str, bytes, bool] | None:
    reader = zlib.decompressobj(bits)
    try:
        found = reader.decompress(body, MOST_OUTPUT)
    except zlib.error:
        return None
    return (name, found, not reader.eof) if found else None


def _from_base64(body: bytes, is_cut: bool) -> tuple[str, bytes, bool] | None:
    """Return the content of a body of base64 if its format is known: any word of these letters could be base64."""
    if len(body) < LEAST_BASE64 or _BASE64.fullmatch(body) is None:
        return None
    letters = b"".join(body.split())
    if is_cut:
        letters = letters[: len(letters) // 4 * 4]
    try:
        found = base64.b64decode(letters, validate=True)[:MOST_OUTPUT]
    except binascii.Error:
        return None
    layer = _unpacked(found, True) if len(found) > 2 and found[0] == 0x78 else None
    is_packed = found.startswith(_GZIP) or (layer is not None and layer[0] == "zlib")
    is_known = is_packed or _tree_of(found, is_cut) is not None or text_of(found, is_cut) is not None
    return ("base64", found, is_cut) if found and is_known else None


# trees


def tree_of(data: Any) -> TreeNode:
    """Return the tree of a value, with at most MOST_NODES nodes and MOST_DEPTH levels."""
    room = MOST_NODES

    def make(key: str, value: Any, depth: int) -> TreeNode:
        nonlocal room
        room -= 1
        if not isinstance(value, dict | list):
            return TreeNode(key, _leaf(value))
        kind = f"{{{len(value)}}}" if isinstance(value, dict) else f"[{len(value)}]"
        node = TreeNode(key, kind)
        items = value.items() if isinstance(value, dict) else enumerate(value)
        if depth < MOST_DEPTH:
            for name, one in islice(items, MOST_NODES):
                if room <= 0:
                    break
                node.children.append(make(_key(name), one, depth + 1))
        node.left = len(value) - len(node.children)
        return node

    return make("", data, 0)


def _key(name: object) -> str:
    return _short(name if isinstance(name, str) else _leaf(name))


def _leaf(value: object) -> str:
    """Return a value without children as text: as JSON, or a description of a type that only msgpack has."""
    if isinstance(value, bytes):
        return _short(f"{counted(len(value), 'byte')}: {value[:64].hex(' ')}")
    if isinstance(value, msgpack.Timestamp):
        return _short(f"time {value.seconds}.{value.nanoseconds:09} s")
    if isinstance(value, msgpack.ExtType):
        return _short(f"extension {value.code}, {counted(len(value.data), 'byte')}: {value.data[:64].hex(' ')}")
    if isinstance(value, str):
        return json.dumps(_short(value), ensure_ascii=False)
    return _short(json.dumps(value) if isinstance(value, bool | int | float) or value is None else repr(value))


def _short(text: str) -> str:
    cut = f"{text[:MOST_LEAF]}..." if len(text) > MOST_LEAF else text
    return printable(without_surrogates(cut))
