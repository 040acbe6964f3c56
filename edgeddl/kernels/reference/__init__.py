"""The kernels in plain NumPy: always complete, and the oracle for the native ones.

They take any strides and return channels-last results (see layout.py). They do not check their
arguments: the functions of the same names in `edgeddl.kernels` do.
"""
