"""What `fab` can do with a cluster; each task is a file, on top of those that several need."""
