"""Deployment: files for containers, systemd, Kubernetes, Prometheus and Grafana.

`release` builds what is released, with `debian` for the package; `image_check` tries the image for containers.
"""
