"""A backend of Django's tasks whose tasks are jobs of tubes: install the extra `django`.

See docs/how-to/task-libraries.md#django.

* `backend`: PenstockBackend, for the setting TASKS. `execution`: one task from its job, and the end of its job.
* `worker`: Worker, the threads of `manage.py penstock_worker`, which is in `management`. `apps`: the application for
  INSTALLED_APPS, which brings that command.
* `tasks`: Django's tasks, from Django 6 or from the package django-tasks for earlier versions.

This package imports no room and not `shared`; only it imports django.
"""
