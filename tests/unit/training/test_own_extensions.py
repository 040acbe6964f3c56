"""--extension, and the extensions of edgeddl.train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgeddl
from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError
from edgeddl.options import parse_train_options, read_config_file
from tests.models import TinyNet
from tests.unit.test_library import SMALL
from tests.unit.training.training_runs import train

HERE = "tests.unit.training.own_extension"


@pytest.fixture
def calls() -> list[tuple[Any, ...]]:
    from tests.unit.training import own_extension

    own_extension.CALLS.clear()
    return own_extension.CALLS


def test_it_is_called_on_every_rank(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    summary = train(tmp_path, 2, extension=(f"{HERE}:Recorder",))
    for rank in range(2):
        own = [call[1:] for call in calls if call[0] == rank]
        assert [call[1] for call in own if call[0] == "step"] == summary["step_losses"]
        assert [call[1] for call in own if call[0] == "epoch"] == [1, 2]
        assert [call for call in own if call[0] == "pause"][-1] == ("pause", True)
        assert own[-1] == ("exit", None)


def test_it_sees_why_a_run_ends(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    with pytest.raises(RuntimeError, match="third step"):
        train(tmp_path, extension=(f"{HERE}:Recorder", f"{HERE}:Failing"))
    assert calls[-1] == (0, "exit", RuntimeError)


def test_it_does_not_change_the_run(tmp_path: Path) -> None:
    with_it = train(tmp_path / "with", extension=(f"{HERE}:Recorder",))
    assert with_it["step_losses"] == train(tmp_path / "without")["step_losses"]


def test_a_resumed_run_does_not_inherit_it(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    train(tmp_path, max_steps=3, extension=(f"{HERE}:Recorder",))
    calls.clear()
    train(tmp_path, max_steps=5, resume="auto")
    assert not calls
    train(tmp_path, max_steps=7, resume="auto", extension=(f"{HERE}:Recorder",))
    assert len([call for call in calls if call[1] == "step"]) == 2


def test_objects_in_python(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    from tests.unit.training.own_extension import Plain

    edgeddl.train(TinyNet, "shapes", run_dir=tmp_path, extensions=[Plain()], **SMALL)
    assert len([call for call in calls if call[1] == "step"]) == 16
    with pytest.raises(ConfigError, match="int has no method on_step, on_epoch, on_pause"):
        edgeddl.train(TinyNet, "shapes", extensions=[3])  # type: ignore[list-item]


def test_repeated_on_the_command_line_and_listed_in_a_file(tmp_path: Path) -> None:
    places = ["a.b:C", "d:e"]
    words = [word for place in places for word in ("--extension", place)]
    assert list(parse_train_options(words).extension) == places
    file = tmp_path / "options.toml"
    file.write_text(f"extension = {places}")
    assert list(read_config_file(file)["extension"]) == places
    assert TrainConfig().extension == ()
    file.write_text('extension = "a.b:C"')
    with pytest.raises(ConfigError, match="expected strings in brackets"):
        read_config_file(file)
    with pytest.raises(ConfigError, match=r"expected package\.module:callable"):
        parse_train_options(["--extension", "tensorboard"])


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Absent", "'Absent' in module tests.unit.training.own_extension does not exist"),
        ("takes_nothing", "takes_nothing() takes 0 positional arguments"),
        ("broken", r"ZeroDivisionError: division by zero"),
        ("incomplete", "object has no method on_step, on_epoch, on_pause"),
    ],
)
def test_mistakes_are_one_message(tmp_path: Path, name: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train(tmp_path, 2, extension=(f"{HERE}:{name}",))
    assert complaint in str(caught.value) and caught.value.on_all_ranks
