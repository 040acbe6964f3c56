"""Prometheus and Grafana for a cluster: what they are told, and a pair of them on this machine."""
