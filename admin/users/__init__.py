"""Who asks, what they may do, and what they did.

Begin at `access`: it finds the user of a request by `sessions`, `users` (the auth file) or a proxy, and checks `roles`.
`command` is `nsqadmin users`. `oidc_provider`, `oidc_flow`, `oidc_token`, `oidc_roles` and `oidc_options` are login at a
provider of OpenID Connect, without its page. `audit` is the trail, sent by `outbox`; `refused_attempts` are in it, too.
`tombstones`: which nodes an operator hides.

It imports `nodes`, to act on behalf of a user, and no other folder.
"""
