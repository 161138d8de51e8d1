"""Settings for all tests: hypothesis never fails for slowness of a shared machine, and prints what to replay."""

from hypothesis import HealthCheck, settings

settings.register_profile("penstock", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")
