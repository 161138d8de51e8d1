"""The pages of nsqadmin, one module each.

Begin at `start`. `topic_pages`, `channel_page`, `node_pages` over `storage`, `record_pages` (audit, tasks, history), `health`
of nsqadmin itself, `login`, and `oidc` (login at a provider).

`forms` are the actions of their forms, `configuration` is that of topics, `api` is the JSON API of NSQ's nsqadmin.

It may import all folders; none imports it.
"""
