"""edgeddl trains neural networks, data-parallel over MPI, on clusters of low-power boards."""

__version__ = "0.1.0"
