"""Frozen parameters: a model freezes them with Chainer's `disable_update`.

Chainer stores this in the update rule that an optimizer sets for a parameter, and ignores the call
if there is no rule yet. edgeddl's own optimizer sets no update rules. So this module adds a rule
that only stores the flag. A Chainer optimizer replaces it, as it replaces any rule.
"""

from __future__ import annotations

from typing import Any

from edgeddl.chainer_compat import chainer


class UpdateFlag(chainer.UpdateRule):
    """An update rule that updates nothing; it only stores whether it is enabled."""

    def update(self, param: Any) -> None:
        """Does nothing, as if the parameter had no rule."""


_chainers_disable_update = chainer.Link.disable_update


def _disable_update(link: Any) -> None:
    """As Chainer's, but also for parameters without an optimizer."""
    for parameter in link.params():
        if parameter.update_rule is None:
            parameter.update_rule = UpdateFlag()
    _chainers_disable_update(link)


chainer.Link.disable_update = _disable_update


def is_frozen(parameter: chainer.Parameter) -> bool:
    """Whether training does not update this parameter."""
    rule = parameter.update_rule
    return rule is not None and not rule.enabled
