"""What a rank and a node tell Prometheus; names.py has every metric."""
