"""Operating a cluster of boards, real or emulated. Knows edgeddl only by its commands and files."""
