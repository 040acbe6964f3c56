"""Pages of docs/reference that describe code, generated from it: scripts/docs-reference."""
