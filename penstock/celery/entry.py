"""Registers penstock:// as soon as kombu is imported.

kombu has no entry points for transports, but loads those of the group kombu.serializers when it is imported. This one adds
the transport, and a serializer without encoder and decoder, which is never used.
"""

from penstock.celery import install

install()
SERIALIZER = (None, None, "application/x-penstock")  # encoder, decoder, content type
