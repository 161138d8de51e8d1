"""The commands of manage.py: `penstock_worker`."""
