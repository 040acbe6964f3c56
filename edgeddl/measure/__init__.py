"""Benchmarks, one per module; each prints a table and can write JSON."""
