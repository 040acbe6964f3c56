"""Options from the command line and from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError
from edgeddl.options import build_parser, parse_train_options


def test_defaults() -> None:
    assert parse_train_options([]) == TrainConfig()


def test_command_line_wins_over_file_wins_over_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('model = "resnet9"\nbatch-size = 64\nnesterov = true\nstep-at = [0.3, 0.6]\n')
    config = parse_train_options(["--config", str(path), "--batch-size", "16"])
    assert (config.model, config.batch_size, config.epochs) == ("resnet9", 16, TrainConfig.epochs)
    assert config.nesterov
    assert config.step_at == (0.3, 0.6)


def test_file_may_spell_keys_with_underscores(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("batch_size = 64\nlr = 1\n")
    config = parse_train_options(["--config", str(path)])
    assert config.batch_size == 64
    assert config.lr == 1.0


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("batchsize = 3", "unknown key 'batchsize'\n  hint: did you mean batch-size?"),
        ("[train]\nlr = 1", "unknown key 'train'"),
        ("batch-size = 0", "batch-size = 0: expected a whole number of at least 1"),
        ("batch-size = 2.5", "batch-size = 2.5: expected a whole number"),
        ('lr = "high"', "lr = 'high': expected a number, without quotes"),
        ('limit-train = "7"', "limit-train = '7': expected a number, without quotes"),
        ("batch-size = inf", "batch-size = inf: expected a whole number"),
        ("step-at = [0.5, inf]", "step-at = [0.5, inf]: expected finite numbers"),
        ("step-at = [true]", "step-at = [True]: expected numbers"),
        ("data-dir = 3", "data-dir = 3: expected a string"),
        ("batch-size = 3\nbatch_size = 4", "sets an option twice"),
        ("lr = nan", "lr = nan: expected a number above 0"),
        ("batch-size = '64'", "batch-size = '64': expected a number, without quotes"),
        ("step-at = 0.5", "step-at = 0.5: expected numbers in brackets, such as [0.5, 0.75]"),
        ("lr = true", "lr = True: expected a number"),
        ("nesterov = 1", "nesterov = 1: expected true or false"),
        ('schedule = "linear"', "expected one of constant, cosine, step, one-cycle"),
        ("model = 5", "model = 5: expected a string"),
        ("lr = [1]", "lr = [1]"),
        ("lr = ", "is not valid TOML"),
        ('balance = "1,0"', "balance = '1,0': expected even, auto, or a number above 0"),
        ("balance = 1", "balance = 1: expected a string"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        parse_train_options(["--config", str(path)])
    assert str(path) in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--batch-size", "0"], "--batch-size: '0': expected a whole number of at least 1"),
        (["--batch-size", "many"], "--batch-size: 'many'"),
        (["--lr", "inf"], "--lr: 'inf': expected a number above 0"),
        (["--batch", "3"], "--batch 3\n  hint: did you mean --batch-size?"),
        (["--modle", "resnet9"], "--modle resnet9\n  hint: did you mean --model?"),
        (["--modle=resnet9"], "hint: did you mean --model?"),
        (["--no-augmnet"], "hint: did you mean --no-augment?"),
        (["--frobnicate"], "--frobnicate\n  hint: see edgeddl train --help"),
        (["--summary", ""], "--summary: '': expected a path"),
        (["--resume", ""], "--resume"),
        (["--schedule", "linear"], "--schedule"),
        (["--config", "absent.toml"], "absent.toml: No such file"),
        (["--stall-timeout-seconds", "5"], "below --stall-warning-seconds"),
        (["--model"], "expected one argument"),
        (["--balance", "fair"], "--balance: 'fair': expected even, auto, or a number above 0"),
        (["--balance", "1,,2"], "--balance: '1,,2'"),
        (["--balance", "1,nan"], "--balance: '1,nan'"),
        (["--balance", "inf,1"], "--balance: 'inf,1'"),
        (["--balance", "2,-1"], "--balance: '2,-1'"),
        (["--balance", ""], "--balance: ''"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_train_options(arguments)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("even", "even"), ("auto", "auto"), ("1,0.5,2", (1.0, 0.5, 2.0)), ("3", (3.0,))],
)
def test_balance(tmp_path: Path, text: str, value: object) -> None:
    assert parse_train_options(["--balance", text]).balance == value
    path = tmp_path / "run.toml"
    path.write_text(f'balance = "{text}"\n')
    assert parse_train_options(["--config", str(path)]).balance == value


def test_help_groups_options_and_shows_defaults() -> None:
    text = build_parser().format_help()
    for group in ("model and data:", "optimisation:", "communication:", "run and output:"):
        assert group in text
    assert "(default: resnet18)" in text
    assert "(default: no)" in text


def test_options_that_may_differ_between_ranks() -> None:
    shared = TrainConfig().shared_options()
    assert {"model", "lr", "batch_size", "seed", "compression"} <= shared.keys()
    assert not {"threads", "data_dir", "run_dir"} & shared.keys()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--bucket-mib", "1e308"], "expected a number of at most 1,000,000,000"),
        (["--stall-timeout-seconds", "1e10"], "expected a number of at most 1,000,000,000"),
        (["--epochs", "9" * 30], "expected a whole number of at most 1,000,000,000"),
        (["--seed", str(2**63)], "expected a whole number of at most 9,223,372,036,854,775,807"),
        (["--batch-size", "9" * 5000], "expected a whole number of at least 1"),
    ],
)
def test_numbers_too_large_to_compute_with(arguments: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_train_options(arguments)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("lr = " + "[\n" * 3000, "values are nested too deeply"),
        ("lr = [" + "[" * 3000, "line 1 is longer than 1,000 bytes"),
        ("\nbatch-size = " + "9" * 5000, "line 2 is longer than 1,000 bytes"),
        ("batch-size = 0x" + "f" * 900, "expected a whole number of at most 1,000,000,000"),
        (".".join("a" * 50_000) + " = 1", "larger than 65,536 bytes"),
        ("lr = 0.1\n" * 10_000, "larger than 65,536 bytes"),
    ],
    ids=["nested over lines", "nested", "digits", "hexadecimal digits", "dotted key", "large"],
)
def test_files_that_are_expensive_to_read(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        parse_train_options(["--config", str(path)])


def test_an_endless_file_is_not_read_completely() -> None:
    with pytest.raises(ConfigError, match="larger than 65,536 bytes"):
        parse_train_options(["--config", "/dev/zero"])
