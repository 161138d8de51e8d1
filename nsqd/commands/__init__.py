"""Programs other than nsqd that use its parts.

* `beanstalkd` and `disque_server` (whose configuration `disque_config` reads): nsqd's node with the originals' flags.
* `import_command` (penstock import), `restore_command` (penstock restore), `verify` (penstock verify).

They import `start`, and no daemon imports them.
"""
