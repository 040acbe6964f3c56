"""Prometheus and Grafana for a cluster: their configuration, and local instances of both."""
