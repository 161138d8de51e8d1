"""Storage of messages and topology: `memory` implements the core's Store, `directory` keeps nsqd.dat, `saver` writes it."""
