"""nsqd's side of discovery: `lookupds` keeps every nsqlookupd told, and asks them for the channels of a new topic."""
