"""Frozen parameters: a model says which by Chainer's `disable_update`.

Chainer notes it in the update rule that an optimizer gives a parameter, and ignores the call where
there is none yet. edgeddl has an optimizer of its own, so a parameter never gets such a rule: here
it gets one that only holds the note. An optimizer of Chainer's replaces it, as it replaces any.
"""

from __future__ import annotations

from typing import Any

from edgeddl.chainer_compat import chainer


class Note(chainer.UpdateRule):
    """An update rule that updates nothing; whether it is enabled is all there is to it."""

    def update(self, param: Any) -> None:
        """Nothing, as with a parameter that has no rule."""


_chainers_disable_update = chainer.Link.disable_update


def _disable_update(link: Any) -> None:
    """As Chainer's, also for parameters that no optimizer has been set up for."""
    for parameter in link.params():
        if parameter.update_rule is None:
            parameter.update_rule = Note()
    _chainers_disable_update(link)


chainer.Link.disable_update = _disable_update


def is_frozen(parameter: chainer.Parameter) -> bool:
    """Whether training leaves this parameter as it is."""
    rule = parameter.update_rule
    return rule is not None and not rule.enabled
