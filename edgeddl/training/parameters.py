"""Moves a Chainer model's parameters into an arena, in the order backward produces gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl.chainer_compat import F, chainer
from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ParameterSpec, Use
from edgeddl.errors import ConfigError
from edgeddl.functions.gradient_sink import collecting
from edgeddl.models import is_frozen
from edgeddl.optimizers import Segment
from edgeddl.training.statistics import RunningStatistics


def named_parameters(model: chainer.Chain) -> dict[str, chainer.Parameter]:
    """Parameters by name, e.g. "stem/conv/W"."""
    return {name.lstrip("/"): parameter for name, parameter in model.namedparams()}


def observe_parameters(
    model: chainer.Chain, image_shape: tuple[int, ...], classes: int
) -> list[ParameterSpec]:
    """The model's parameters in the order in which backward completes their gradients.

    A pass of blank images through the model shows the order. Chainer's backward is deterministic,
    so it is the order of every later pass, on every rank. Frozen parameters no longer require a
    gradient, so backward does not compute it.
    """
    blank = np.zeros((2, *image_shape), np.float32)  # batch normalisation needs more than one
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        logits = model(blank)  # also initialises parameters without a shape
    if logits.shape != (2, classes):
        raise ConfigError(
            f"the model returns an array of shape {logits.shape} for two images,"
            f" expected (2, {classes}): one score for each class"
        )
    parameters = named_parameters(model)
    frozen = {name for name, parameter in parameters.items() if is_frozen(parameter)}
    if parameters and len(frozen) == len(parameters):
        raise ConfigError(
            "all parameters of the model are frozen: there is nothing to train",
            hint="call enable_update() of the layers to train",
        )
    for name in frozen:
        parameters[name]._requires_grad = parameters[name].node._requires_grad = False
    statistics = RunningStatistics(model)
    before = statistics.flat()
    recorder = _Recorder()
    model.cleargrads()
    with chainer.using_config("train", True), collecting(recorder):
        F.sum(model(blank)).backward()
    statistics.set_flat(before)
    uses = {
        name: Use.FROZEN if name in frozen else recorder.use_of(parameter)
        for name, parameter in parameters.items()
    }
    model.cleargrads()
    names = {id(parameter): name for name, parameter in parameters.items()}
    seen = [names[key] for key in recorder.views if key in names]
    at_once = [name for name in seen if uses[name] is Use.ONCE]
    at_the_end = [name for name in [*seen, *reversed(parameters)] if name not in set(at_once)]
    order = dict.fromkeys(at_once + at_the_end)
    return [_spec(name, parameters[name], uses[name]) for name in order]


def move_parameters(model: chainer.Chain, arena: Arena) -> None:
    """Make every parameter of the model a view of the arena, with the value it has."""
    for name, parameter in named_parameters(model).items():
        view = arena.parameter(name)
        view[...] = parameter.array
        parameter.array = view


def plan_segments(arena: Arena, weight_decay: float) -> list[Segment]:
    """Consecutive parameters with the same weight decay; biases and batch normalisation have none.

    A parameter with one axis is a bias or belongs to a normalisation. Weight decay would shift or
    rescale activations instead of regularising.
    """
    segments: list[Segment] = []
    for slot in arena.plan.slots:
        decay = weight_decay if len(slot.spec.shape) > 1 else 0.0
        if segments and segments[-1].weight_decay == decay:
            segments[-1] = Segment(segments[-1].start, slot.stop, decay)
        else:
            segments.append(Segment(slot.start, slot.stop, decay))
    return segments


def _spec(name: str, parameter: chainer.Parameter, use: Use) -> ParameterSpec:
    if parameter.array is None:
        raise ConfigError(f"parameter {name} has no shape: its link is never used in forward")
    if parameter.dtype != np.float32:
        raise ConfigError(f"parameter {name} is {parameter.dtype}, expected float32")
    axes = range(parameter.ndim)
    # Convolution weights (K, C, kh, kw) are stored as [kh][kw][C][K]: channels last, as
    # activations.
    memory_axes = (2, 3, 1, 0) if parameter.ndim == 4 else tuple(axes)
    return ParameterSpec(name, tuple(parameter.shape), memory_axes, use)


class _Recorder:
    """A gradient sink that records the order in which functions ask for views."""

    def __init__(self) -> None:
        self.views: dict[int, np.ndarray] = {}  # by id of the parameter

    def view_for(self, parameter: Any) -> np.ndarray:
        view = np.empty_like(parameter.array)
        self.views.setdefault(id(parameter), view)
        return view

    def ready(self, parameter: Any) -> None:
        """Nothing to do."""

    def use_of(self, parameter: chainer.Parameter) -> Use:
        """After backward: a gradient that is not the first view is a sum of several."""
        if parameter.grad is None:
            return Use.UNUSED
        view = self.views.get(id(parameter))
        return Use.ONCE if view is None or view is parameter.grad else Use.SHARED
