"""nsqadmin, for operators. It asks nsqlookupd and nsqd of any make over HTTP, and keeps no state of the cluster itself.

Read `main`, `daemon` and `options`; then the folders. Each imports only those below it:

* `pages`: what a browser or the JSON API asks for, and the forms.
* `alarms`: what looks at the nodes while no page is open, and tells operators. `messages`: messages and jobs, and what is done
  to them.
* `output`: layout, tables, forms and errors as HTML.
* `users`: who asks, what they may do, and the audit trail of what they did.
* `nodes`: questions to nodes with deadlines, and what the answers say of them.

`times` says points in time. This room imports no other room, and neither penstock.client nor penstock.launch.
"""
