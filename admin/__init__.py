"""nsqadmin, for operators. It asks nsqlookupd and nsqd of any make over HTTP, and keeps no state of the cluster itself.

Read `main`, `daemon` and `options`; then `cluster` (who has what) over `upstreams`, `places` and `answer_budget` (questions
with deadlines, their URLs, answers with bounds); then `pages` over `topic_pages`, `channel_page`, `node_pages` and
`record_pages`.

* What looks at the nodes while no page is open: `monitor` over `inventory` (nodes that were
  ever seen) over `observations` (what an answer says of the messages on a node) and `snapshot`; alarms
  in `alarm_rules`, `alarm_checks` over `node_checks`, `alarm_past` and `alarm_subject`, and `alarm_book`, shown by
  `alarm_pages`, sent by `webhook`; `state_store` keeps them.
* Questions of pages: `queries` over `response_cache` (viewers share answers) and `fallback` (nobody waits for a node that
  hangs), `series_past` (of nodes that are gone), `held_past` (of original nodes), `browsing` (messages and jobs) over
  `message_list` (of several nodes), `history` (a lake's rollups), `inactive` (topics without a node).
* Pure parts: `merge`, `views` over `decoders` (of bodies), `message_filters`, `sorting`, `tables`, `overview`,
  `channel_figures`, `backlogs`, `storage`, `talkers`, `series`, `roles`, `sessions`.
* Output: `layout` (layout, live parts, forms) over `live_events` (streams of live pages), `form_answers` (refusals, and what a
  form did: `flashes`), `error_pages` and `failures` (nodes' errors in words); `times`, `export`, `api` (the original's JSON
  API).
* Actions: `forms`, `message_forms` and `republish` over `form_state` (a refused form), `actions`, `tasks` and `bulk` (to many
  messages), `audit` over `outbox`, `refused_attempts`, `tombstones`; `configuration` of topics over `topic_settings` (pure).
* nsqadmin itself: `health` over `answer_times`.
* Users: `access`, `login`, `users`, `users_command`; `oidc` (log-in at an OIDC provider) over `oidc_provider` (what it
  answers), `oidc_flow`, `oidc_token`, `oidc_roles` and `oidc_options`, all pure.

This room imports no other room, and neither penstock.client nor penstock.launch.
"""
