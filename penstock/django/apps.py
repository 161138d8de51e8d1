"""The Django application `penstock.django`, which brings the command penstock_worker."""

from django.apps import AppConfig


class PenstockConfig(AppConfig):
    """The application; it has no models."""

    name = "penstock.django"
    label = "penstock"
