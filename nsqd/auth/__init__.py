"""Ask authorization servers what a client may do."""
