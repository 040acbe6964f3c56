"""The tasks of `fab`, and the modules they share."""
