"""Reports on finished and running runs: a page of plots, PNG files, tables and JSON."""
