"""Tools to operate a cluster of boards, real or emulated.

They run edgeddl's commands and read its files; they import only `edgeddl.table`.
"""
