"""What each of nsqadmin's routes for programs does, and its arguments, for docs/generate.py.

Arguments that may be left out have a "?" before their name. `make reference` fails if a route has no line here.
"""

NSQADMIN: dict[str, tuple[str, str]] = {
    "GET /ping": ("", "Return `OK`"),
    "GET /api/topics": ("?inactive", "List the topics"),
    "POST /api/topics": ("JSON: topic, ?channel", "Create a topic or a channel"),
    "GET /api/topics/{topic}": ("", "Return the statistics of a topic, over all nodes"),
    "POST /api/topics/{topic}": ("JSON: action", "`pause`, `unpause` or `empty` a topic"),
    "DELETE /api/topics/{topic}": ("", "Delete a topic on all nodes"),
    "GET /api/topics/{topic}/{channel}": ("", "Return the statistics of a channel, over all nodes"),
    "POST /api/topics/{topic}/{channel}": ("JSON: action", "`pause`, `unpause` or `empty` a channel"),
    "DELETE /api/topics/{topic}/{channel}": ("", "Delete a channel on all nodes"),
    "GET /api/nodes": ("", "List the nsqd"),
    "GET /api/nodes/{node}": ("", "Return the statistics of an nsqd"),
    "DELETE /api/nodes/{node}": ("JSON: topic", "Tombstone a topic on an nsqd"),
    "GET /api/cluster": ("", "Return the state of each cluster: nodes, copies of logs, and what is wrong"),
    "GET /api/alarms": ("", "List all alarms, and when they were checked last"),
    "GET /api/counter": ("", "Return the number of messages of every channel"),
    "GET /api/graphite": ("metric, target", "Return a rate from graphite"),
    "GET /render": ("", "Proxy a picture of graphite, with `-proxy-graphite`"),
    "GET /config/{option}": ("", "Return the value of an option"),
    "PUT /config/{option}": ("", "Set `log_level` or `nsqlookupd_http_addresses`"),
}
