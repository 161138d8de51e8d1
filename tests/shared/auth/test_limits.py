"""Limits of identities: the tables that are valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.auth.auth_file import AuthFileError, parse
from shared.auth.limits import MOST, NONE, Limits, LimitsError, read_limits
from shared.auth.tokens import digest
from tests.cases import each

ENTRIES = {"token": f'sha256 = "{digest(b"x")}"', "user": "", "certificate": 'subject = "CN=a"'}


@each("kind", ENTRIES)
def test_every_kind_of_identity_may_have_limits(kind: str) -> None:
    entry = f'[[{kind}]]\nname = "a"\nroles = ["viewer"]\n{ENTRIES[kind]}\n'
    (plain,) = parse(entry).identities()
    assert plain.limits == NONE
    (found,) = parse(
        entry + "limits = { connections = 1, messages = 2, bytes = 3, in_flight = 4, output = 5, topics = 6 }"
    ).identities()
    assert found.limits == Limits(1, 2, 3, 4, 5, 6)
    (other,) = parse(entry + "limits = { bytes = 3 }").identities()
    assert other.limits == Limits(bytes=3)
    assert other.limits.given() == {"bytes": 3}


def test_rates_and_roles() -> None:
    assert Limits(messages=1).has_rates
    assert Limits(bytes=1).has_rates
    assert not Limits(connections=1, in_flight=1, output=1).has_rates
    with pytest.raises(AuthFileError, match="'limits' is not known"):
        parse('[[role]]\nname = "r"\nrules = [{verbs = ["act"]}]\nlimits = { bytes = 1 }')


@each("value, wanted", [
    ("5", "limits is a table of connections, messages, bytes, in_flight, output, topics"),
    ("{}", "limits is a table"), ("[]", "limits is a table"), ("{ message = 5 }", "limits: 'message' is not known"),
    ("{ messages = 0 }", "limits: messages is a whole number from 1"),
    ("{ messages = -1 }", "limits: messages is"), ("{ messages = true }", "limits: messages is"),
    ("{ messages = 1.0 }", "limits: messages is"), ('{ messages = "1" }', "limits: messages is"),
    ("{ messages = inf }", "limits: messages is"), (f"{{ messages = {MOST + 1} }}", "limits: messages is"),
    ("{ bytes = 1, output = 99999999999999999999999999 }", "limits: output is"),
])  # fmt: skip
def test_what_is_wrong_is_named_by_its_line(value: str, wanted: str) -> None:
    with pytest.raises(AuthFileError) as raised:
        parse(f'\n[[certificate]]\nname = "a"\nroles = ["viewer"]\nsubject = "CN=a"\nlimits = {value}\n')
    assert str(raised.value).startswith(f"line 2: a: {wanted}")


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists)
    | st.dictionaries(
        st.sampled_from(["connections", "messages", "bytes", "in_flight", "output", "topics", "", "x"]),
        st.integers() | st.booleans() | st.floats() | st.text(),
    )
)
def test_whatever_it_says_it_is_read_or_refused(value: object) -> None:
    try:
        found = read_limits(value)
    except LimitsError:
        return
    assert found.given() == value
    assert all(0 < one <= MOST for one in found.given().values())
