"""Messages of channels and jobs of tubes, over all nodes: to look at, and to act on.

Begin at `browsing`, the pages, over `message_list`. `message_forms` and `republish` are the forms: they act at once, or by
`bulk`, the steps of `tasks`, on many messages. `actions` are the commands to the cluster, also those about topics and channels.

It imports `output`, `users` and `nodes`.
"""
