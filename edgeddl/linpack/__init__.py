"""LINPACK: how fast a machine, or a cluster, really computes, and why if it is slow."""
