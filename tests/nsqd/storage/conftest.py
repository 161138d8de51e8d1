"""Deferred messages are in small chunks here."""

from tests.small_chunks import small_chunks

__all__ = ["small_chunks"]
