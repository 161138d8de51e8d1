"""nsqadmin, for operators. It asks nsqlookupd and nsqd of any make over HTTP, and keeps no state of the cluster itself.

Read `main`, `daemon` and `options`; then `cluster` (who has what) over `upstreams`, `places` and `answer_budget` (questions
with deadlines, their URLs, answers with bounds); then `pages` over `topic_pages`, `node_pages` and `record_pages`.

* Questions of pages: `queries` over `response_cache` (viewers share answers) and `fallback` (nobody waits for a node that
  hangs), `browsing` (messages and jobs), `history` (a lake's rollups), `inactive` (topics without a node).
* Pure parts: `merge`, `views`, `overview`, `storage`, `talkers`, `series`, `roles`, `sessions`; `cluster_state` (nodes that
  copy their logs), made by `cluster_merge` and `cluster_logs` (who owns which) of what `cluster_answer` has read.
* Output: `layout` (layout, live parts, refusals), `export`, `api` (the original's JSON API).
* Actions: `forms` over `actions` and `tasks` (to many messages), `audit` over `outbox`.
* Users: `access`, `login`, `users`, `users_command`; `oidc` (log-in at an OIDC provider) over `oidc_provider` (what it
  answers), `oidc_flow`, `oidc_token`, `oidc_roles` and `oidc_options`, all pure.

This room imports no other room, and neither penstock.client nor penstock.launch.
"""
