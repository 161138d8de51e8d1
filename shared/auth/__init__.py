"""Who may do what, for all daemons: identities, the proofs by which they are known, and their rights.

Read `verbs` (what can be done), `rules` (who may), `auth_file` (where it is written), then `keyring` (the file as it is now).
`tokens` are secrets that a program shows, `own_token` is that of this process, `on_behalf` says for whom it acts; `passwords`
are those of people; `failures` bounds how often one may guess, `limits` is how much each may use. `edit` changes the file, and
`command` is `penstock auth`. All modules but `keyring`, `own_token` and `command` are pure, except that `auth_file` looks up
users of the machine whom the file names. Nothing here knows a protocol: each port asks `Identity.rights` about a verb, a topic
and a channel.

See docs/design/security.md#who-may-do-what.
"""
