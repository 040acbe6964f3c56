"""The emulator's options, without root."""

from __future__ import annotations

import os

import pytest

from cluster.emulate.__main__ import build_parser, main


def test_other_users_than_root_get_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["up"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: an emulated cluster needs root") and "sudo" in said


@pytest.mark.parametrize("words", [["up", "--kind", "heavy"], ["up", "--suite", "potato"], []])
def test_unknown_commands_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(words)
    assert ended.value.code == 2


def test_arguments_after_two_dashes_are_the_command() -> None:
    options = build_parser().parse_args(["exec", "pi-01", "--", "ls", "-l", "--", "x"])
    assert (options.node, options.command[-4:]) == ("pi-01", ["ls", "-l", "--", "x"])
