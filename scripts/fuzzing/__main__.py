"""Feeds corrupted files and requests to the code in edgeddl that reads them.

A case passes if its input is read, or rejected with an error message. A traceback, a crash, a hang
or accepted corruption is a failure and is printed with its input. The same seed generates the same
cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tqdm import tqdm

from edgeddl.table import counted, render_table
from fuzzing.session import CASE_SECONDS, Result, run_target
from fuzzing.targets import TARGET_NAMES

HEADINGS = ("target", "cases", "accepted", "rejected", "failures", "seconds", "cases/s")


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    cases = range(options.cases) if options.case is None else [options.case]
    targets = options.target or TARGET_NAMES
    results = []
    with tqdm(total=len(targets) * len(cases), unit=" cases", disable=None) as bar:
        for target in targets:
            bar.set_description_str(target)
            result = run_target(
                target, options.seed, cases,
                case_seconds=options.case_seconds, on_case=bar.update,
            )  # fmt: skip
            results.append(result)
            for failure in result.failures:
                bar.write(f"{failure}\n", file=sys.stderr)
    print(render_table(HEADINGS, [_row(result) for result in results]))
    failures = sum(len(result.failures) for result in results)
    total = sum(result.cases for result in results)
    print(f"\nseed {options.seed}: {counted(failures, 'failure')} in {counted(total, 'case')}")
    return 1 if failures else 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cases",
        type=_count,
        default=2000,
        metavar="N",
        help="cases per target (default: 2000)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="(default: 0)")
    parser.add_argument(
        "--target", action="append", type=_target, metavar="NAME",
        help=f"one of {', '.join(TARGET_NAMES)}; can be repeated (default: all)",
    )  # fmt: skip
    parser.add_argument("--case", type=int, metavar="N", help="run only this case, to reproduce it")
    parser.add_argument(
        "--case-seconds", type=float, default=CASE_SECONDS, metavar="X",
        help=f"a case that takes longer is a failure (default: {CASE_SECONDS:g})",
    )  # fmt: skip
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def _target(text: str) -> str:
    if text not in TARGET_NAMES and ":" not in text:  # package.module:callable, for development
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(TARGET_NAMES)}")
    return text


def _row(result: Result) -> list[str]:
    return [
        result.target,
        f"{result.cases:,}",
        f"{result.accepted:,}",
        f"{result.rejected:,}",
        str(len(result.failures)),
        f"{result.seconds:.1f}",
        f"{result.cases / result.seconds:,.0f}",
    ]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
