"""Where messages and topology are kept: `memory` implements the core's Store, `metadata` keeps nsqd.dat."""
