"""HTML: the layout of pages, and what several of them have.

Begin at `layout`: it renders a page, its live parts (`live_events`) and its forms. `site` has what all pages of a cluster
need. `form_state` is what a refused form shows, `form_answers` and `flashes` what a form did; `requests` has what handlers of
forms share; `message_filters` and `topic_settings` are fields of forms. `error_pages` and `failures` say what nodes answered
in words; `tables` and `export` are tables, and as files.

It imports `users` and `nodes`.
"""
