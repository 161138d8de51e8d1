"""What /metrics says of identities: few names, and sums that never fall."""

from prometheus_client import Metric

from nsqd.http.figures import RowChoice
from nsqd.http.identities import LABELLED, by_messages, identity_families, identity_rows
from nsqd.protocols.account import Accounts
from shared.auth.limits import Limits
from tests.nsqd.core.node import SECOND

NOW = 1000 * SECOND


def by_name(families: list[Metric]) -> dict[str, dict[str, float]]:
    return {
        family.name: {
            sample.labels["identity"]: sample.value for sample in family.samples if "_created" not in sample.name
        }
        for family in families
    }


def test_identities_with_the_most_messages_have_series_of_their_own() -> None:
    accounts, choice = Accounts(), RowChoice(LABELLED, by_messages)
    for number in range(LABELLED + 20):
        accounts.account(f"n{number:03}").admit(Limits(), number + 1, 10, NOW)
    found = by_name(list(identity_families(*choice.choose(identity_rows(accounts)), "(other)")))
    messages = found["nsqd_identity_messages"]
    assert (len(messages), messages["(other)"], messages["n020"]) == (LABELLED + 1, sum(range(1, 21)), 21)
    assert found["nsqd_identity_message_bytes"]["(other)"] == 200
    accounts.account("n000").admit(Limits(), 1000, 10, NOW)  # it keeps its place among the others
    found = by_name(list(identity_families(*choice.choose(identity_rows(accounts)), "(other)")))
    assert found["nsqd_identity_messages"]["(other)"] == sum(range(1, 21)) + 1000
