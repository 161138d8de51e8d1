"""What routes declare about themselves."""

from shared.http.route import KNOWN, OPEN, Route
from tests.cases import each
from tests.declared_routes import LOOKUPD, NSQD


@each("route", [*NSQD.values(), *LOOKUPD.values()])
def test_rights_depend_on_declared_arguments_only(route: Route) -> None:
    need = route.need
    declared = {one.name for one in route.arguments}
    assert {need.topic, need.channel, need.preview, need.target, need.finishing, *need.reading} - {""} <= declared
    assert need in (OPEN, KNOWN) or need.verb is not None
    assert route.does[0].isupper() or route.does[0] == "`"
    assert not route.does.endswith(".")
