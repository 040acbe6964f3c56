"""LINPACK: measures how fast a machine or cluster computes and finds causes if it is slow."""
