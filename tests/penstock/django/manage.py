"""manage.py of the project `site`, which so has one name in every process."""

import sys

from django.core.management import call_command

from tests.penstock.django import site

if __name__ == "__main__":
    assert site.settings.configured
    call_command(*sys.argv[1:])
