"""nsqadmin, for operators. It asks nsqlookupd and nsqd of any make over HTTP, and keeps no state of the cluster itself.

Read `main`, `daemon` and `options`; then the folders. Each imports only those below it:

* `terminal`: the commands of `penstock` about all nodes, over the same queries as the pages.
* `pages`: the pages, the JSON API, and the forms.
* `alarms`: checks the nodes while no page is open, and notifies operators. `messages`: lists of messages and jobs, and actions.
* `output`: layout, tables, forms and errors as HTML.
* `users`: authentication, rights, and the audit trail.
* `nodes`: requests to nodes with deadlines, and the meaning of the answers.

`times` formats points in time. This package imports no other top-level one, and neither penstock.client nor penstock.launch.
"""
