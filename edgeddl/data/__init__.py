"""Data sets, sharding, augmentation and the prefetching loader."""

from __future__ import annotations

from edgeddl.data.augmentation import NO_AUGMENTATION, Augmentation, usual_augmentation
from edgeddl.data.dataset import Dataset, load_dataset
from edgeddl.data.fetch import fetch_cifar10
from edgeddl.data.images import ImageSet, normalise
from edgeddl.data.loader import StepBatch, TrainLoader
from edgeddl.data.locations import default_data_dir
from edgeddl.data.sharding import epoch_permutation, split_evenly

__all__ = [
    "NO_AUGMENTATION",
    "Augmentation",
    "Dataset",
    "ImageSet",
    "StepBatch",
    "TrainLoader",
    "default_data_dir",
    "epoch_permutation",
    "fetch_cifar10",
    "load_dataset",
    "normalise",
    "split_evenly",
    "usual_augmentation",
]
