"""Users, their rights, and the record of their actions.

Begin at `access`: it finds the user of a request by `sessions`, the auth file or a proxy, and checks `roles`.
`command` is `penstock users`. `oidc_provider`, `oidc_flow`, `oidc_token`, `oidc_roles` and `oidc_options` are login at a
provider of OpenID Connect, without its page. `audit` is the trail, sent by `outbox`; `refused_attempts` are in it, too.
`tombstones`: topics that an operator hid on a node.

It imports `nodes`, to act on behalf of a user, and no other folder.
"""
