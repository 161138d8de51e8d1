"""A node remembers tails that were salvaged: a bounded number, each with the epochs of which it has bytes."""

from nsqd.cluster.membership.salvaged import MOST, MOST_EPOCHS, SalvagedTails, tail_of
from nsqd.core.message.epoch import Epoch

LOG, OTHER = b"l" * 16, b"o" * 16
EPOCHS = tuple((Epoch(number, 0, bytes(8)), 100 * number) for number in range(1, 5))


def test_a_tail_has_the_epochs_from_that_on_in_which_it_begins() -> None:
    assert tail_of(LOG, 3, 250, 480, EPOCHS).epochs == EPOCHS[1:]
    assert tail_of(LOG, 3, 200, 480, EPOCHS).epochs == EPOCHS[1:]
    assert tail_of(LOG, 3, 0, 480, EPOCHS).epochs == EPOCHS


def test_the_oldest_tails_are_forgotten() -> None:
    tails = SalvagedTails()
    for start in range(MOST + 2):
        tails.add(tail_of(LOG, 3, start, 5000, EPOCHS[:1]))
    assert [one.start for one in tails.known] == list(range(2, MOST + 2))


def test_a_tail_is_noted_once_and_found_by_its_log_in_the_order_of_positions() -> None:
    tails = SalvagedTails([tail_of(OTHER, 3, 1, 500, EPOCHS)])
    for start in (300, 200, 300):
        tails.add(tail_of(LOG, 3, start, 500, EPOCHS))
    assert [one.start for one in tails.of_log(LOG)] == [200, 300]


def test_a_tail_of_many_epochs_is_not_remembered() -> None:
    epochs = tuple((Epoch(number, 0, bytes(8)), number) for number in range(MOST_EPOCHS + 1))
    tails = SalvagedTails()
    tails.add(tail_of(LOG, 3, 0, 500, epochs))
    assert tails.known == []
