"""nsqadmin: the operators' room. It asks nsqlookupd and nsqd over HTTP, of whatever make they are, and keeps nothing itself."""
