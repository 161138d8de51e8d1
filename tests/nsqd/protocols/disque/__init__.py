"""The Disque front end without a socket."""
