"""What all commands of `penstock` share, in whatever component they are.

* `commands`: their parsers, the error that ends one, exit codes, and what happens when a pipe closes or Ctrl-C is pressed.
* `context`: the addresses and credentials that a command uses: flags, PENSTOCK_*, saved contexts, the set of `penstock up`.
* `completion`: the scripts by which shells complete the commands.
* `token`: the token of a context, from a file or a command.
* `output`: tables that fit the terminal, JSON, colors.
* `confirm`: the prompt before a dangerous action.

This package imports no other component.
"""
