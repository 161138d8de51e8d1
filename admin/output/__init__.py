"""HTML: the layout of pages, and their common parts.

Begin at `layout`: it renders a page, its live parts (`live_events`) and its forms. `site` has the collaborators of all pages of
a cluster. `form_answers` has the results and refusals of forms, `form_state` the state of a refused form, `requests` functions
for handlers of forms; `message_filters` and `topic_settings` are fields of forms. `error_pages` and `failures` show errors of
nodes; `tables` and `export` are tables, and as files.

It imports `users` and `nodes`.
"""
