"""Random settings of topics and channels, and random headers at which some of them look."""

from random import Random
from typing import Any

from shared.retry import Retry
from shared.topic_config import (
    OF_CHANNELS,
    SETTINGS,
    Durability,
    OnBury,
    OnExpire,
    Ordering,
    Overflow,
    Switch,
    TopicConfig,
)
from tests.nsqd.core.node import MS, SECOND

CHOICES: dict[str, tuple[Any, ...]] = {
    "durability": tuple(Durability), "retention": (0, 3600 * SECOND), "retention_bytes": (0, 3000), "replicate": (1,),
    "max_attempts": (0, 1, 3), "retry": (Retry(), Retry(SECOND // 2, SECOND // 2), Retry(MS, SECOND)),
    "concurrency": (0, 1, 7), "rate": (0, 500), "group_concurrency": (0, 1, 3), "group_rate": (0, 100),
    "fair": tuple(Switch), "ttl": (0, 300 * MS, 60 * SECOND), "on_expire": tuple(OnExpire), "max_length": (0, 5, 50),
    "max_bytes": (0, 500), "overflow": tuple(Overflow), "ordering": tuple(Ordering), "on_bury": tuple(OnBury),
    "dead_letter": ("none", "u"),
}  # fmt: skip
HARMLESS = ("retry", "concurrency", "rate", "group_concurrency", "group_rate", "fair", "ordering", "on_bury")


def any_config(random: Random, names: tuple[str, ...] = tuple(SETTINGS), most: int = 4) -> TopicConfig:
    """Return up to `most` of these settings, for the topic or for its channel `work`."""
    chosen = random.sample(names, random.randrange(min(most, len(names)) + 1))
    config = TopicConfig(**{name: random.choice(CHOICES[name]) for name in chosen})
    own = {name: value for name, value in config.own.items() if name in OF_CHANNELS}
    return TopicConfig().with_channel("work", TopicConfig(**own)) if own and random.random() < 0.2 else config


def any_headers(random: Random) -> tuple[tuple[str, str], ...]:
    """Return a group, a priority, a time to live, several of them, or none."""
    headers = (
        ("group", random.choice("abc")),
        ("priority", random.choice("0459")),
        ("ttl", random.choice(("100ms", "9s"))),
    )
    return tuple(one for one in headers if random.random() < 0.3)
