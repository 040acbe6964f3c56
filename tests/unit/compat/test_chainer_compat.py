"""Chainer imports without warnings and works, and the shims are removed afterwards."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import textwrap
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest

from edgeddl.chainer_compat import F, L, chainer
from edgeddl.chainer_shims import legacy_modules


def run_python(program: str, *options: str, cwd: Path | None = None) -> str:
    """The stdout of a fresh interpreter; fails if it writes to stderr."""
    command = [sys.executable, *options, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.strip()


@pytest.mark.parametrize("options", [[], ["-W", "error"]], ids=["default", "warnings are errors"])
def test_imports_without_a_warning(options: list[str]) -> None:
    program = "from edgeddl.chainer_compat import chainer; print(chainer.__version__)"
    assert run_python(program, *options) == "7.8.1"


@pytest.mark.parametrize(
    "program",
    [
        "import chainer",
        "import chainer.links",
        "from chainer import testing; import chainer",
        "import importlib.util as u; assert u.find_spec('chainer').origin; import chainer",
    ],
)
def test_a_plain_import_of_chainer_works_anywhere(program: str, tmp_path: Path) -> None:
    """In a program that does not import edgeddl, outside the source tree."""
    more = "; print(chainer.__version__, type(chainer.__loader__).__name__)"
    assert run_python(program + more, "-W", "error", cwd=tmp_path) == "7.8.1 SourceFileLoader"


def test_without_site_packages_importing_edgeddl_first_is_enough() -> None:
    """With python -S, which reads no .pth files."""
    program = f"""
        import sys
        sys.path.extend({sys.path!r})
        assert "edgeddl" not in sys.modules
        import edgeddl, chainer
        print(chainer.__version__)
    """
    assert run_python(program, "-S") == "7.8.1"


def test_python_starts_without_numpy(tmp_path: Path) -> None:
    """Every Python of the environment imports what edgeddl.pth imports."""
    program = """
        import sys
        print({"numpy", "chainer", "edgeddl.chainer_shims"} & set(sys.modules))
        print(sorted(name for name in sys.modules if name.startswith("edgeddl")))
    """
    names = ["edgeddl", "edgeddl.chainer_import"]
    assert run_python(program, cwd=tmp_path).splitlines() == ["set()", str(names)]


def test_pip_uninstall_removes_the_pth_file() -> None:
    # not by name: pytest has the source tree in its path, whose egg-info comes first
    installed = distributions(name="edgeddl", path=[sysconfig.get_path("purelib")])
    assert "edgeddl.pth" in [str(file) for one in installed for file in one.files or ()]


def test_a_pth_file_without_its_package_is_silent(tmp_path: Path) -> None:
    """After the source tree of an editable installation was deleted."""
    pth = Path(__file__).parents[3] / "edgeddl" / "edgeddl.pth"
    (tmp_path / "edgeddl.pth").write_text(pth.read_text())
    program = f"import site; site.addsitedir({str(tmp_path)!r}); print('started')"
    assert run_python(program, "-S", cwd=tmp_path) == "started"


def test_shims_are_removed() -> None:
    """Every module comes from a file, and NumPy has only its own names."""
    program = """
        import sys
        import numpy
        names = set(dir(numpy))
        import edgeddl.chainer_compat
        print(sorted(set(dir(numpy)) ^ names))
        print([name for name in ("pkg_resources", "numpy.distutils")
               if name in sys.modules and sys.modules[name].__spec__ is None])
    """
    assert run_python(program).split() == ["[]", "[]"]


def test_a_real_pkg_resources_wins(tmp_path, monkeypatch) -> None:
    (tmp_path / "pkg_resources.py").write_text(
        "import warnings\n"
        "warnings.warn('pkg_resources is deprecated as an API.', UserWarning)\n"
        "class DistributionNotFound(Exception): pass\n"
        "class VersionConflict(Exception): pass\n"
        "asked = []\n"
        "def require(requirement):\n"
        "    asked.append(requirement)\n"
        "    raise DistributionNotFound\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    program = """
        import edgeddl.chainer_compat, pkg_resources
        print(any(name.startswith("cupy") for name in pkg_resources.asked))
    """
    assert run_python(program) == "True"


def test_a_broken_pkg_resources_is_replaced(tmp_path, monkeypatch) -> None:
    package = tmp_path / "pkg_resources"
    package.mkdir()
    (package / "extern.py").write_text("")
    (package / "__init__.py").write_text("import pkg_resources.extern, sys\nsys.not_there")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    program = """
        import sys
        import edgeddl.chainer_compat
        print([name for name in sys.modules if name.startswith("pkg_resources")])
    """
    assert run_python(program) == "[]"


def test_chainer_testing_imports() -> None:
    program = """
        import chainer.testing
        from unittest import TestCase
        for requirement in ("numpy>=1.10", "surely-not-installed>=1"):
            decorate = chainer.testing.with_requires(requirement)
            test = decorate(type("Test", (TestCase,), {}))
            print(getattr(test, "__unittest_skip__", False))
    """
    assert run_python(program).split() == ["False", "True"]


def test_legacy_modules_can_be_entered_twice() -> None:
    for _ in range(2):
        with legacy_modules():
            assert "pkg_resources" in sys.modules
            assert np.sctypes["float"]


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_resize_images(mode: str) -> None:
    x = chainer.Variable(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4))
    y = F.resize_images(x, (8, 8), mode=mode, align_corners=False)
    y.grad = np.ones_like(y.array)
    y.backward()
    np.testing.assert_allclose(y.array.mean(), x.array.mean(), rtol=1e-6)
    np.testing.assert_allclose(x.grad.sum(), 64, rtol=1e-6)


def test_as_strided_has_a_gradient() -> None:
    x = chainer.Variable(np.arange(4, dtype=np.float32))
    y = F.as_strided(x, (3, 2), (1, 1), 0)
    y.grad = np.ones_like(y.array)
    y.backward()
    np.testing.assert_array_equal(x.grad, [1, 2, 2, 1])


def test_stock_chainer_trains_a_step() -> None:
    model = L.Linear(4, 3, initialW=np.eye(3, 4, dtype=np.float32))
    optimizer = chainer.optimizers.MomentumSGD(lr=0.5).setup(model)
    x, t = np.eye(3, 4, dtype=np.float32), np.array([2, 0, 1], np.int32)
    losses = []
    for _ in range(3):
        loss = F.softmax_cross_entropy(model(x), t)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        losses.append(float(loss.array))
    assert losses[2] < losses[1] < losses[0]
    assert model.W.dtype == np.float32
