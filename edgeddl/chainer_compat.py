"""Chainer as edgeddl's own modules import it: `from edgeddl.chainer_compat import F, L, chainer`.

Importing edgeddl makes Chainer importable (`chainer_import`).
"""

from __future__ import annotations

import chainer
import chainer.functions as F
import chainer.links as L

__all__ = ["F", "L", "chainer"]
