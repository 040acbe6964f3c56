"""Ends a run that has diverged, before it writes another checkpoint.

A run has diverged if a number is infinite or NaN, or if its loss is far above that of guessing. The
limit is 20 times ln(classes), the loss of a model that assigns the same probability to each class,
or 20 times the loss of the first step, whichever is larger. The loss has to be above it

- in each of the last 10 steps, or
- in the last step and on the test images.

At ten classes the limit is 46: the right class has a probability of 1e-20, on average over all
images. With 40 times the default learning rate (ResNet-18 on `shapes`, `--lr 1`), the loss peaks at
44 and is at 6.5 one step later. The test loss alone is no criterion: running statistics lag behind
the parameters, and in the same run it reaches two million while the training loss falls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgeddl.errors import DivergenceError

FACTOR = 20
STEPS = 10


def check_finite(what: str, values: float | np.ndarray, step: int) -> None:
    """Raise unless all values are finite; they must be the same on all ranks."""
    if np.isfinite(values).all():
        return
    found = f"{values}" if isinstance(values, float) else "not finite"
    raise _diverged(f"the {what} is {found} at step {step}")


def check_losses(losses: Sequence[float], classes: int) -> None:
    """Raise if the losses of the last steps are all above the limit."""
    limit, last = _limit(losses, classes), losses[-STEPS:]
    if len(last) == STEPS and min(last) > limit:
        raise _diverged(
            f"the loss has been above {limit:.4g} for {STEPS} steps"
            f" and is {last[-1]:.4g} at step {len(losses)}"
        )


def check_evaluation(test_loss: float, losses: Sequence[float], classes: int) -> None:
    """Raise if the test loss and the loss of the last step are above the limit."""
    check_finite("test loss", test_loss, len(losses))
    limit = _limit(losses, classes)
    if min(test_loss, losses[-1]) > limit:
        raise _diverged(
            f"the loss is {losses[-1]:.4g} at step {len(losses)}, and {test_loss:.4g} on the test"
            f" images: both are above {limit:.4g}"
        )


def _limit(losses: Sequence[float], classes: int) -> float:
    return FACTOR * max(math.log(classes), losses[0])


def _diverged(what: str) -> DivergenceError:
    return DivergenceError(
        f"{what}: training has diverged",
        hint="start a new run with a lower --lr or a longer --warmup-epochs;"
        " --init-from can start it from an earlier checkpoint",
    )
