"""Who may do what, for all daemons: identities, the proofs by which they are known, and their rights.

Read `verbs` (what can be done), `rules` (who may), `auth_file` (where it is written), then `keyring` (the file as it is now).
`tokens` are secrets that a program shows, `own_token` is that of this process, `on_behalf` says for whom it acts; `passwords`
are those of people. `limits` is how much each may use. All modules but `keyring` and `own_token` are pure; `command` is
`penstock auth`. Nothing here knows a protocol: each port asks `Identity.rights` about a verb, a topic and a channel.

See docs/design/security.md#who-may-do-what.
"""
