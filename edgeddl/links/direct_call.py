"""A shorter way from a link's call to its forward."""

from __future__ import annotations

from typing import Any

from edgeddl.chainer_compat import chainer


class DirectCall(chainer.Link):
    """A link that, without hooks to be told of it, is called straight.

    Chainer's way also looks for a __call__ that a mixin may have brought: there is none. After a
    kernel, which leaves nothing in the caches, that way takes 38 us.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._local_link_hooks or chainer._get_link_hooks():
            return super().__call__(*arguments, **options)
        return self.forward(*arguments, **options)
