"""Results are saved and loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_scaling.plan import Run
from bench_scaling.results import ConditionsDiffer, Failure, Results, UnreadableResults

from tests.unit.bench_scaling.support import case, measurement


def test_results_are_loaded_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    first = Results(path, {"threads": 1})
    first.add(measurement(case(2), 2.5, sent_bytes=1.0))
    first.add_failure(Failure(Run(case(4), 0), "died"))
    again = Results(path, {"threads": 1})
    again.load()
    assert list(again) == list(first)
    assert Run(case(2), 0) in again and Run(case(2), 1) not in again
    assert not again.has_failed(case(4))  # so that it is measured again


def test_results_of_different_conditions_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    Results(path, {"threads": 1, "cluster": "pi"}).write()
    with pytest.raises(ConditionsDiffer, match=r"^threads: 1 then, 2 now$"):
        Results(path, {"threads": 2, "cluster": "pi"}).load()


def test_added_or_removed_systems_are_not_different_conditions(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    known = [{"threads": 1}, {"threads": 1, "version of torch": "2"}, {"threads": 1}]
    for conditions in known:
        results = Results(path, conditions)
        if path.exists():
            results.load()
        results.write()
    assert json.loads(path.read_text())["conditions"] == known[1]


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"conditions": 1}', '{"conditions": {}, "measurements": [{"run": 1}]}'],
)
def test_a_file_of_another_format_is_rejected(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(UnreadableResults, match="Error: "):
        Results(path, {}).load()
