"""nsqadmin, for operators. It asks nsqlookupd and nsqd of any make over HTTP, and keeps no state of the cluster itself."""
