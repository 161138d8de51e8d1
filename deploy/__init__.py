"""Deployment: `release` builds what is released; the rest are files for containers, systemd, Prometheus and Grafana."""
