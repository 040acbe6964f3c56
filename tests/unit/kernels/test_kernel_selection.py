"""Which kernels compute: each value of EDGEDDL_KERNELS in its own process."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

from edgeddl import kernels
from edgeddl.kernels import reference

# Stand-ins for edgeddl.kernels.library, installed before anything imports it.
PRESENT = """
import sys, types
class Library:
    build = "avx2"
    def describe(self):
        return {"build": "avx2", "why": "it has AVX2", "threads": "2", "compiler": "gcc"}
    def function(self, name):
        return lambda x, y, count: y.fill(7)
library = types.ModuleType("edgeddl.kernels.library")
library.load = Library
sys.modules["edgeddl.kernels.library"] = library
"""
ABSENT = """
import sys
from edgeddl.errors import NativeKernelsUnavailable
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "edgeddl.kernels.library":
            raise NativeKernelsUnavailable("no library was built", hint="install gcc")
sys.meta_path.insert(0, Absent())
"""
WITHOUT_CTYPES = """
import sys
sys.modules["ctypes"] = None
"""
REPORT = """
import json
import numpy as np
from edgeddl import kernels
y = kernels.relu_forward(np.array([[-1, 2]], np.float32))
print(json.dumps({"chosen": kernels.chosen(), "y": str(y), **kernels.describe()}))
"""
FUNCTIONS = """
import warnings
import numpy as np
warnings.simplefilter("error")
from edgeddl import functions
x = np.ones((2, 4, 6, 6), np.float32)
y = functions.convolution_2d(x, np.ones((4, 4, 3, 3), np.float32), cover_all=True)
print(type(functions.relu(y).creator).__module__)
"""


def run(code: str, asked: str | None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EDGEDDL_")}
    if asked is not None:
        environment["EDGEDDL_KERNELS"] = asked
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("asked", "chosen", "by_native"),
    [
        (None, "native avx2", True),
        ("", "native avx2", True),
        ("auto", "native avx2", True),
        ("native", "native avx2", True),
        ("reference", "reference", False),
        ("chainer", "chainer, else native avx2", True),
    ],
)
def test_each_value_selects_its_kernels(asked: str | None, chosen: str, by_native: bool) -> None:
    done = run(PRESENT + REPORT, asked)
    assert done.returncode == 0 and done.stderr == ""
    report = json.loads(done.stdout)
    assert report["chosen"] == chosen
    assert report["y"] == ("[[7. 7.]]" if by_native else "[[0. 2.]]")
    assert report["build"] == ("avx2" if by_native else "NumPy") and report["why"]


@pytest.mark.parametrize("asked", ["auto", "chainer"])
def test_without_a_library_it_falls_back_to_numpy_with_one_warning(asked: str) -> None:
    done = run(ABSENT + REPORT + REPORT, asked)
    assert done.returncode == 0
    assert done.stderr.count("falling back to NumPy") == 1
    assert "no library was built" in done.stderr and "hint: install gcc" in done.stderr
    report = json.loads(done.stdout.splitlines()[0])
    assert report["chosen"].endswith("reference") and "[[0. 2.]]" in report["y"]
    assert "no library was built" in report["why"]


def test_without_ctypes_it_falls_back_to_numpy() -> None:
    done = run(WITHOUT_CTYPES + REPORT, "auto")
    assert done.returncode == 0 and "ctypes" in done.stderr
    assert json.loads(done.stdout)["chosen"] == "reference"


def test_requested_native_kernels_are_required() -> None:
    done = run(ABSENT + REPORT, "native")
    assert done.returncode != 0 and done.stdout == ""
    assert "NativeKernelsUnavailable: no library was built" in done.stderr


def test_a_requested_reference_needs_no_warning() -> None:
    assert run(ABSENT + REPORT, "reference").stderr == ""


def test_the_error_of_an_unknown_value_lists_the_known_ones() -> None:
    done = run(REPORT, "fastest")
    assert done.returncode != 0
    assert "must be one of auto, native, reference, chainer, not 'fastest'" in done.stderr


def test_the_command_reports_an_unknown_value_without_a_traceback() -> None:
    code = "import sys; from edgeddl.__main__ import main; sys.exit(main(['info']))"
    done = run(code, "fastest")
    assert done.returncode == 2
    assert "EDGEDDL_KERNELS must be one of" in done.stderr and "Traceback" not in done.stderr


def test_chainers_functions_are_used_without_a_warning() -> None:
    done = run(FUNCTIONS, "chainer")
    assert done.stdout.startswith("chainer.functions."), done.stderr
    assert "falls back to Chainer" in run(FUNCTIONS, "reference").stderr


def test_info_shows_the_selected_kernels_and_the_reason() -> None:
    code = "from edgeddl.__main__ import main; main(['info', '--json'])"
    facts = json.loads(run(PRESENT + code, "auto").stdout)
    assert facts["kernels"] == "native avx2" and facts["kernels why"] == "it has AVX2"
    table = run(ABSENT + code.replace(", '--json'", ""), "auto").stdout
    assert "reference" in table and "no library was built" in table


def test_the_reference_has_every_kernel() -> None:
    exported = [getattr(kernels, name) for name in kernels.__all__]
    for kernel in exported:
        *_, subject = kernel.__module__.split(".")
        if subject != "selection":
            module = importlib.import_module(f"{reference.__name__}.{subject}")
            assert callable(getattr(module, kernel.__name__))
