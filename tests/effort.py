"""How hard the tests with random input try.

PENSTOCK_EFFORT=25 tries 25 times as many seeds, examples, inputs and rounds as `make unit` and `make test` do.
PENSTOCK_FIRST is the first seed. `make campaign` sets both.
"""

import os

EFFORT = float(os.environ.get("PENSTOCK_EFFORT", "1"))
FIRST = int(os.environ.get("PENSTOCK_FIRST", "0"))
IS_CAMPAIGN = EFFORT > 1
EXAMPLES = 20  # of a property test that names no number


def tries(usual: int, in_short: int | None = None) -> int:
    """Return how often a test tries that tries so often in `make test`.

    `in_short`: in `make test` it tries only so often, and `usual` counts in a campaign.
    """
    return max(1, round((usual if in_short is None or IS_CAMPAIGN else in_short) * EFFORT))


def seeds(usual: int, in_short: int | None = None) -> range:
    """Return the seeds of a test that tries `count` in `make test`; `in_short` is as for `tries`."""
    return range(FIRST, FIRST + tries(usual, in_short))
