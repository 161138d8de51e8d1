"""Where messages and topology are kept: `memory` implements the core's Store, `directory` keeps nsqd.dat, `saver` writes it."""
