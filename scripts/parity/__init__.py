"""Compares exported models with edgeddl, in an environment without edgeddl."""
