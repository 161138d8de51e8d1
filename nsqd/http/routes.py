"""All routes of nsqd's HTTP API. The original's debug routes do not exist here."""

from nsqd.http.config import Config
from nsqd.http.node import Node
from nsqd.http.observe import Observe
from nsqd.http.publish import Publishing
from nsqd.http.stats import Stats
from nsqd.http.topology import Topology
from shared.http.api import Routes


def routes(node: Node) -> Routes:
    """Path -> method -> handler."""
    observe, publishing, config = Observe(node), Publishing(node), Config(node)
    return {
        "/pub": {"POST": publishing.pub},
        "/mpub": {"POST": publishing.mpub},
        "/ping": {"GET": observe.ping},
        "/info": {"GET": observe.info},
        "/stats": {"GET": Stats(node).stats},
        "/config/{option}": {"GET": config.get, "PUT": config.put},
        **Topology(node).routes(),
        "/metrics": {"GET": observe.metrics},
        "/livez": {"GET": observe.livez},
        "/readyz": {"GET": observe.readyz},
    }
