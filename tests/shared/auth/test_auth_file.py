"""The auth file: what it says, and what is wrong with it, by line."""

import pwd
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.auth.auth_file import NEVER, AuthFileError, parse
from shared.auth.tokens import digest, is_token, new_token
from shared.auth.verbs import Verb
from tests.cases import each

TOKEN = b"pst_" + b"x" * 43
WHOLE = f"""
[[role]]
name = "orders"
rules = [
  {{ verbs = ["publish"], topics = ["orders.*"] }},
  {{ verbs = ["consume"], topics = ["orders.*"], channels = ["api", "mail*"] }},
]

[[token]]
name = "api"
sha256 = "{digest(TOKEN)}"
roles = ["orders"]
expires = 2027-01-01T00:00:00Z

[[token]]
name = "api"                     # the next token of the same program
sha256 = "{digest(b"pst_" + b"y" * 43)}"
roles = ["orders", "viewer"]

[[user]]
name = "ann"
password = "$argon2id$v=19$m=8,t=1,p=1$c2FsdA$aGFzaA"
roles = ["operator"]
topics = ["orders.*"]

[[certificate]]
name = "billing"
subject = "CN=billing*"
roles = ["producer"]

[[certificate]]
name = "web"
san = "spiffe://shop/*"
roles = ["consumer"]
"""


def test_what_a_file_says() -> None:
    found = parse(WHOLE)
    api = found.tokens[digest(TOKEN)]
    assert (api.name, api.kind, api.roles, api.expires) == ("api", "token", ("orders",), 1_798_761_600.0)
    assert api.rights.may(Verb.PUBLISH, "orders.eu")
    assert api.rights.may(Verb.CONSUME, "orders.eu", "mail2")
    assert not api.rights.may(Verb.CONSUME, "orders.eu", "other")
    assert not api.rights.may(Verb.STATS, "orders.eu")
    assert [one.name for one in found.identities()] == ["api", "api", "ann", "billing", "web"]
    ann, password = found.users["ann"]
    assert password.startswith("$argon2id$")
    assert ann.rights.may(Verb.ACT, "orders.eu")
    assert not ann.rights.may(Verb.ACT, "other")
    assert not ann.rights.may(Verb.STATS)  # of all topics
    assert ann.expires == NEVER
    for subject, names, who in (
        ("CN=billing2", [], "billing"), ("CN=x", ["dns", "spiffe://shop/web"], "web"), ("CN=x", ["spiffe://y/web"], None),
    ):  # fmt: skip
        identity = found.of_certificate(subject, names)
        assert (identity.name if identity is not None else None) == who


SOCKET = '[[socket]]\nname = "s"\nroles = ["producer"]\n'


def test_users_of_unix_sockets() -> None:
    root = pwd.getpwuid(0).pw_name
    found = parse(
        f"{SOCKET}uid = [7, 8]\n{SOCKET}uid = 9\ntopics = ['orders.*']\nexpires = 2027-01-01T00:00:00Z\n"
        f"{SOCKET}user = '{root}'\n"
    )
    assert sorted(found.sockets) == [0, 7, 8, 9]
    assert found.sockets[7] is found.sockets[8]
    assert (found.sockets[7].name, found.sockets[7].kind, found.sockets[7].roles) == ("s", "socket", ("producer",))
    assert found.sockets[7].rights.may(Verb.PUBLISH, "any")
    nine = found.sockets[9]
    assert (nine.rights.may(Verb.PUBLISH, "orders.eu"), nine.rights.may(Verb.PUBLISH, "any")) == (True, False)
    assert nine.expires == 1_798_761_600.0
    assert len(found.identities()) == 3


GOOD = f'[[token]]\nname = "a"\nsha256 = "{digest(TOKEN)}"\nroles = ["viewer"]\n'


@each("text, wanted", [
    ("x = [", "end of document: Invalid value"), ("x = 1\ny = @", "line 2: Invalid value"),
    ("\n[[tokens]]\n", "line 2: 'tokens' is not known"), ("[token]\nname = 1", "line 1: token is a list"),
    ("[[token]]\nroles = []", "line 1: name: use"), ('[[token]]\nname = "a b"', "line 1: name: use"),
    (GOOD + GOOD, "line 5: a: the same token is there twice"),
    (GOOD + '\n[[token]]\nname = "b"\nroles = ["viewer"]', "line 6: b: sha256 is missing"),
    (GOOD.replace(digest(TOKEN), "short"), "line 1: a: sha256 has 64"),
    (GOOD + "secret = 1", "line 1: 'secret' is not known"),
    (GOOD.replace("viewer", "none"), "line 1: a: the role 'none' is not known"),
    (GOOD.replace('["viewer"]', "[]"), "line 1: a: roles is a list"),
    (GOOD.replace('["viewer"]', '"viewer"'), "line 1: a: roles is a list"),
    (GOOD + "expires = 2027-01-01", "line 1: a: expires is a time"),
    (GOOD + "expires = 2027-01-01T00:00:00", "line 1: a: expires is a time"),
    (GOOD + "topics = []", "line 1: a: topics is a list"),
    (GOOD + "topics = ['re:\\Qx']", "has \\Q, which is not allowed"),
    (GOOD + 'topics = ["re:("]', "line 1: a: topics: 're:('"),
    ('[[role]]\nname = "admin"\nrules = [{verbs = ["publish"]}]', "line 1: the role admin exists"),
    ('[[role]]\nname = "r"\nrules = []', "line 1: r: rules is a list"),
    ('[[role]]\nname = "r"\nrules = [{verbs = ["fly"]}]', "line 1: rule 1 of role r: the verb 'fly'"),
    ('[[role]]\nname = "r"\nrules = [{verb = ["publish"]}]', "line 1: rule 1 of role r: use verbs"),
    ('[[role]]\nname = "r"\nrules = [{verbs = []}]', "line 1: rule 1 of role r: verbs is a list"),
    ('[[role]]\nname = "r"\nrules = [{verbs = ["act"], topics = [1]}]', "line 1: rule 1 of role r: topics"),
    ('[[user]]\nname = "u"\nroles = ["viewer"]\npassword = "plain"', "line 1: u: password is a hash"),
    ('[[user]]\nname = "u"\nroles = ["viewer"]\n' * 2, "line 4: u is defined twice"),
    ('[[certificate]]\nname = "u"\nroles = ["viewer"]', "line 1: u: give subject or san"),
    ('[[certificate]]\nname = "u"\nroles = ["viewer"]\nsubject = 1', "line 1: u: subject is a list"),
    (SOCKET, "line 1: s: give uid or user"), (SOCKET + "uid = 1\nuser = 'root'", "line 1: s: give uid or user"),
    (SOCKET + "uid = []", "line 1: s: uid is a number"), (SOCKET + "uid = '1'", "line 1: s: uid is a number"),
    (SOCKET + "uid = true", "line 1: s: uid is a number"), (SOCKET + "uid = -1", "line 1: s: uid is a number"),
    (SOCKET + "uid = [1, 4294967295]", "line 1: s: uid is a number"),
    (SOCKET + "user = 1", "line 1: s: unknown user '' of this machine"),
    (SOCKET + "user = 'no-such-user'", "line 1: s: unknown user 'no-such-user' of this machine"),
    (SOCKET + "uid = 7\n" + SOCKET + "uid = [8, 7]", "line 5: s: the user 7 is there twice"),
    (SOCKET + "uid = 7\nsubject = 'x'", "line 1: 'subject' is not known"),
])  # fmt: skip
def test_what_is_wrong_is_named_by_its_line(text: str, wanted: str) -> None:
    with pytest.raises(AuthFileError) as raised:
        parse(text)
    assert wanted in str(raised.value)
    assert "plain" not in str(raised.value)


def test_what_is_too_much_is_refused_when_the_file_is_read() -> None:
    for text in ("x = " + "[" * 3000, "x = " + "1" * 5000):
        with pytest.raises(AuthFileError):
            parse(text)
    topics = ", ".join(f'"{"*x" * 100}{number}"' for number in range(1000))
    with pytest.raises(AuthFileError, match="cannot be used together"):
        parse(
            f'[[role]]\nname = "r"\nrules = [{{ verbs = ["publish"], topics = [{topics}] }}]\n{GOOD.replace("viewer", "r")}'
        )


@each("subject, is_his", [
    ("CN=billing1", True), ("CN=billing,O=x", False), ("CN=x,O=shop", True), ("CN=x\\,O=shop", False),
    ("CN=x,OU=y,O=shop", False), ("CN=abc", True),
    ("CN=a\\,c", True),  # one character, which has a backslash in the subject
    ("CN=a,c", False),
    ("CN=a\\c", False),  # a backslash is not a character by itself
])  # fmt: skip
def test_a_star_stands_for_a_part_of_a_subject(subject: str, is_his: bool) -> None:
    text = '[[certificate]]\nname = "a"\nsubject = "CN=billing*"\nroles = ["viewer"]\n'
    text += '[[certificate]]\nname = "b"\nsubject = "CN=*,O=shop"\nroles = ["viewer"]\n'
    text += '[[certificate]]\nname = "c"\nsubject = "CN=a?c"\nroles = ["viewer"]\n'
    assert (parse(text).of_certificate(subject, []) is not None) is is_his


def test_names_that_differ_in_case_only_are_found() -> None:
    entries = [("token", "ann"), ("token", "Ann"), ("token", "bob"), ("token", "bob")]
    text = "".join(
        f'[[{kind}]]\nname = "{name}"\nsha256 = "{place:064x}"\nroles = ["viewer"]\n'
        for place, (kind, name) in enumerate(entries)
    )
    found = parse(text + '[[certificate]]\nname = "BOB"\nsubject = "CN=b"\nroles = ["viewer"]\n')
    assert found.twins() == [("ann", "Ann"), ("bob", "BOB")]
    twin = found.twin("bOb")
    assert (twin.name, twin.kind) == ("bob", "token")
    assert found.twin("bobby") is None


@given(st.text(max_size=300), st.integers(0, len(WHOLE) - 1), st.characters(codec="utf-8"))
def test_any_text_and_a_corrupt_file_are_read_or_refused(text: str, place: int, character: str) -> None:
    for one in (text, WHOLE[:place] + character + WHOLE[place + 1 :]):
        with suppress(AuthFileError):
            parse(one)


def test_the_form_of_a_token() -> None:
    assert is_token(new_token(lambda size: "A" * (size * 4 // 3 + 1)).encode())
    wrong = (b"", b"pst_", b"pst_short", b"PST_" + b"x" * 43, TOKEN + b"x" * 100, TOKEN[:-1] + b"\xff", TOKEN + b"\n")
    assert not any(map(is_token, wrong))


def test_a_thousand_with_the_same_hundred_rules_share_what_was_made_of_these() -> None:
    rules = ", ".join(f'{{ verbs = ["publish"], topics = ["t{number}.*"] }}' for number in range(100))
    entries = [f'[[token]]\nname = "n{at}"\nsha256 = "{at:064x}"\nroles = ["big"]\n' for at in range(1000)]
    found = parse(f'[[role]]\nname = "big"\nrules = [{rules}]\n{"".join(entries)}topics = ["t9*"]\n').identities()
    assert len(found) == 1000
    assert len({id(one.rights) for one in found}) == 2  # the last one is restricted to some topics
    assert found[0].rights.may(Verb.PUBLISH, "t1.x")
    assert not found[-1].rights.may(Verb.PUBLISH, "t1.x")
