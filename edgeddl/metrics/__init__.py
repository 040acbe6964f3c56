"""Prometheus metrics of ranks and nodes; names.py lists every metric."""
