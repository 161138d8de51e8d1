"""Implement nsqd's side of discovery: `lookupds` keeps every nsqlookupd informed, and asks for a new topic's channels."""
