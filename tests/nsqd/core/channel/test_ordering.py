"""All settings of a channel, changed under load: random lives in which no message is lost or stays."""

from nsqd.core.channel import actions
from nsqd.core.channel.channel import Channel
from nsqd.core.message.attributes import Attributes
from shared.topic_config import TopicConfig
from tests.effort import seeds
from tests.nsqd.any_config import any_config, any_headers
from tests.nsqd.core.channel.life import Life
from tests.nsqd.storage.sim_node import run_seeds


class ChangingLife(Life):
    """Random clients, an operator who kicks and finishes, and settings that change. A node is checked after each act."""

    kill_rate = 0.2

    def __init__(self, seed: int) -> None:
        self.published: list[bytes] = []
        super().__init__(seed)

    def choose_config(self) -> TopicConfig:
        return any_config(self.random, most=9)

    def run(self) -> None:
        acts = self.subscribe, self.wait, self.kill, self.kick, self.leave, self.change, self.change
        self.live(120, *[self.publish] * 2, *[self.answer] * 3, *acts)
        self.config = TopicConfig()
        self.configure()
        for _ in range(3000):
            if not any(self.channel.counts()):
                break
            self.live(1, self.subscribe, self.finish_all, self.finish_all, self.wait, self.kick)
        assert not any(self.channel.counts()), self.channel.counts()

    @property
    def channel(self) -> Channel:
        return self.node.broker.topics["t"].channels["c"]

    def change(self) -> None:
        self.config = self.choose_config()
        self.configure()

    def configure(self) -> None:
        self.node.broker.topics["t"].configure(self.config)
        self.node.turn()

    def publish(self) -> None:
        for _ in range(self.random.choice((1, 2, 9))):
            new = [b"%d" % (len(self.published) + number) for number in range(self.random.choice((1, 1, 3, 40)))]
            self.published += new
            self.node.broker.topics["t"].intake.publish_with(new, Attributes(any_headers(self.random)))
        self.node.turn()

    def kick(self) -> None:
        """Kick or finish the messages that were buried first."""
        self.random.choice((actions.kick, actions.finish_buried))(self.channel, self.channel.buried.oldest(50))
        self.node.turn()

    def look(self) -> None:
        self.node.turn()
        self.taken += [(client, one) for client, inbox in self.clients for one in inbox.take()]
        self.node.broker.check()


def test_settings_that_change_under_load_lose_nothing_and_hold_nothing_up() -> None:
    for _ in run_seeds(ChangingLife, seeds(300, in_short=25)):
        pass
