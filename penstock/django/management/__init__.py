"""The commands of manage.py: `commands` has them."""
