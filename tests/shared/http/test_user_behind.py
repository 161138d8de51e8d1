"""The user behind a request is believed only with a signature by the token of an identity that may do everything."""

from starlette.requests import Request

from shared.auth.auth_file import Identity
from shared.auth.on_behalf import SIGNATURE, USER, headers_on_behalf
from shared.auth.rules import Rights, Rule
from shared.auth.verbs import ALL, Verb
from shared.http.authorize import user_behind
from shared.http.errors import HttpError
from tests.cases import each

TOKEN = "pst_" + "a" * 43
PATH, QUERY = "/topic/delete", "topic=a%2Fb"
ADMIN = Identity("nsqadmin", "token", ("admin",), Rights([Rule(ALL)]))


def headers(
    user: str = "ann", token: str = TOKEN, method: str = "POST", target: str = f"{PATH}?{QUERY}"
) -> dict[str, str]:
    return headers_on_behalf(token, user, method, target)


def found(
    sent: dict[str, str],
    identity: Identity = ADMIN,
    shown: str = f"Bearer {TOKEN}",
    query: str = QUERY,
    more: tuple[tuple[bytes, bytes], ...] = (),
) -> str | int:
    """The user, or the status of the refusal."""
    pairs = [(name.lower().encode(), value.encode()) for name, value in (sent | {"Authorization": shown}).items()]
    scope = {
        "type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": query.encode(),
        "headers": [*pairs, *more],
    }  # fmt: skip
    try:
        return user_behind(Request(scope), identity)
    except HttpError as error:
        return error.status


def test_a_signed_name_or_none() -> None:
    for user in ("ann", "ann@example.com", "Ännchen"):
        assert found(headers(user)) == user
    assert found({}) == found({SIGNATURE: "0" * 64}) == found(headers("")) == found(headers(token="")) == ""
    assert found(headers(target=PATH), query="") == "ann"


@each("sent", [
    headers() | {USER: "bob"}, headers() | {USER: ""}, headers() | {SIGNATURE: "0" * 64}, headers() | {SIGNATURE: ""},
    {USER: "ann"}, headers(token=TOKEN[:-1] + "b"), headers(method="GET"), headers(target=PATH),
    headers(target=f"{PATH}?topic=a/b"), headers() | {SIGNATURE: "é" * 64}, headers("bob") | {USER: "ann"},
])  # fmt: skip
def test_wrong_signatures(sent: dict[str, str]) -> None:
    assert found(sent) == 403


def test_two_names_or_another_proof_than_a_bearer_token() -> None:
    assert found(headers(), more=((USER.lower().encode(), b"bob"),)) == 403
    for shown in (f"Basic {TOKEN}", "", TOKEN):
        assert found(headers(), shown=shown) == 403


def by_certificate(kind: str, rights: Rights, sent: dict[str, str]) -> str | int:
    return found(sent, Identity("nsqadmin", kind, (), rights), shown="")


def test_a_connection_that_shows_a_certificate_needs_no_signature() -> None:
    everything = Rights([Rule(ALL)])
    assert by_certificate("certificate", everything, {USER: "ann"}) == "ann"
    assert by_certificate("certificate", everything, {}) == ""
    for kind in ("socket", "token", "user"):
        assert by_certificate(kind, everything, {USER: "ann"}) == 403
    assert by_certificate("certificate", Rights([Rule(ALL - {Verb.ADMIN})]), {USER: "ann"}) == 403
    certified = Identity("nsqadmin", "certificate", (), everything)
    assert found({USER: "ann"}, certified, shown="", more=((USER.lower().encode(), b"bob"),)) == 403
    assert found({USER: "ann"}, certified) == 403  # a token is shown, which counts


@each("rights", [
    Rights([Rule(ALL - {Verb.ADMIN})]), Rights([Rule(ALL, ("orders*",))]), Rights([Rule(ALL)], ("orders*",)),
])  # fmt: skip
def test_an_identity_without_all_rights_names_no_user(rights: Rights) -> None:
    assert found(headers(), Identity("operator", "token", (), rights)) == 403
