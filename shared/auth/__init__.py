"""Identities, their credentials and their rights, for all daemons.

Read `verbs` (the actions), `rules` (what they allow), `auth_file` (the file with both), then `keyring` (its current content).
`tokens` are the secrets of programs, `own_token` is that of this process, `on_behalf` names the user for whom it acts;
`passwords` are those of people; `failures` bounds how often a client may guess, `limits` how much an identity may use. `edit`
changes the file, and `command` is `penstock auth`. All modules but `keyring`, `own_token` and `command` are pure, except that
`auth_file` looks up users of the machine. Nothing here knows a protocol: each port asks `Identity.rights` about a verb, a topic
and a channel.

See docs/contributing/design/security.md#who-may-do-what.
"""
