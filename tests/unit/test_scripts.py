"""The scripts in a fresh checkout, with fakes of pip and venv."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from baselines.torch_environment import TORCH
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_tools import TEST_PACKAGES

from tests.support import REPOSITORY

SHELL_SCRIPTS = [
    "scripts/bench-kernels",
    "scripts/bench-scaling",
    "scripts/chaos",
    "scripts/compare-accuracy",
    "scripts/compare-compression",
    "scripts/docs-reference",
    "scripts/fuzz",
    "scripts/lint",
    "scripts/quickstart",
    "scripts/setup",
    "scripts/test",
    "scripts/test-aarch64",
    "scripts/test-parity",
    "scripts/test-provision",
    "scripts/test-sanitizers",
    "scripts/test-tools",
    ".ci/run",
]

# a fake Python that logs pip's arguments and copies itself into new environments
STAND_IN = f"""#!/bin/sh
case "$*" in
    *_base_executable*) echo "$0" ;;
    "-m venv --clear .venv") rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m pip "*) echo "$*" >>pip-calls; echo "pip's last line"; [ ! -f pip-fails ] ;;
    *) exec "{sys.executable}" "$@" ;;
esac
"""


@pytest.mark.parametrize("script", SHELL_SCRIPTS)
def test_shell_scripts_pass_shellcheck(script: str) -> None:
    path = REPOSITORY / script
    assert path.stat().st_mode & 0o100
    subprocess.run(["sh", "-n", path], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "--exclude=SC1091", path], check=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create a checkout for scripts/setup, with a fake Python."""
    folder = tmp_path / "a check out"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "scripts", folder / "scripts", ignore=ignored)
    csrc = "edgeddl/kernels/csrc"
    shutil.copytree(REPOSITORY / csrc, folder / csrc)
    package = ("edgeddl/edgeddl.pth", "edgeddl/kernel_builds.py")
    for name in ("setup.py", "setup.cfg", "pyproject.toml", *package):
        shutil.copy(REPOSITORY / name, folder / name)
    (tmp_path / "python").write_text(STAND_IN)
    (tmp_path / "python").chmod(0o755)
    return folder


def set_up(checkout: Path, python: str | Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "scripts" / "setup"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(python or checkout.parent / "python")},
        capture_output=True,
        text=True,
    )


def steps(result: subprocess.CompletedProcess[str]) -> str:
    """Return the numbers of the steps that were run, such as "1234"."""
    assert result.returncode == 0, result.stderr
    return "".join(line[1] for line in result.stdout.splitlines() if line.startswith("["))


def test_changed_kernels_are_rebuilt(checkout: Path) -> None:
    set_up(checkout)
    with (checkout / "edgeddl/kernels/csrc/gemm.c").open("a") as source:
        source.write("\n")
    assert steps(set_up(checkout)) == "34"


def test_setup_runs_once(checkout: Path) -> None:
    assert steps(set_up(checkout)) == "1234"
    pip_calls = (checkout / "pip-calls").read_text()
    assert "--build-constraint scripts/build-constraints.txt --editable .[dev]" in pip_calls
    again = set_up(checkout)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert (checkout / "pip-calls").read_text() == pip_calls


def test_setup_installs_again_when_the_settings_change(checkout: Path) -> None:
    set_up(checkout)
    with (checkout / "setup.cfg").open("a") as settings:
        settings.write("# another line\n")
    assert steps(set_up(checkout)) == "34"
    assert steps(set_up(checkout)) == ""


def test_setup_starts_from_scratch_in_a_moved_checkout(checkout: Path) -> None:
    set_up(checkout)
    moved = checkout.rename(checkout.with_name("moved"))
    assert steps(set_up(moved)) == "1234"


def test_setup_shows_the_log_of_a_failure_and_starts_from_scratch(checkout: Path) -> None:
    (checkout / "pip-fails").touch()
    failed = set_up(checkout)
    assert failed.returncode == 1
    assert "pip's last line" in failed.stderr
    assert "hint: see the end of .venv/setup.log above" in failed.stderr
    (checkout / "pip-fails").unlink()
    assert steps(set_up(checkout)) == "1234"


def test_setup_names_an_unsupported_python(checkout: Path) -> None:
    result = set_up(checkout, python="/bin/false")
    assert result.returncode == 1
    assert "a 64-bit Python 3.11, 3.12 or 3.13 is required; found /bin/false: none" in result.stderr
    assert "hint: sudo apt install python3" in result.stderr


def test_test_tools_need_root(checkout: Path) -> None:
    (checkout.parent / "id").write_text("#!/bin/sh\necho 1000\n")
    (checkout.parent / "id").chmod(0o755)
    done = subprocess.run(
        [checkout / "scripts/test-tools"],
        env={"PATH": f"{checkout.parent}:/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and not (checkout / ".venv").exists()
    assert "must run as root" in done.stderr and "hint: sudo " in done.stderr


def test_hints_of_skipped_tests_are_installed() -> None:
    sources = [path.read_text() for path in (REPOSITORY / "tests").rglob("*.py")]
    hints = re.findall(r"apt install ([a-z0-9 -]+)", "\n".join(sources))
    asked = {package for hint in hints for package in hint.split()}
    brought = {package for packages in TEST_PACKAGES.values() for package in packages.split()}
    assert {"prometheus", "chromium", "hpcc"} <= asked - {"python3"} <= brought


def test_only_the_cpu_build_of_pytorch_is_installed() -> None:
    """PyPI's build for x86-64 includes gigabytes of CUDA libraries."""
    wanted = Requirement(TORCH).specifier
    assert wanted.contains("2.13.0+cpu") and not wanted.contains("2.13.0")


@pytest.mark.parametrize(("user", "before_test"), [(0, {"tools", "lint"}), (1000, {"lint"})])
def test_ci_installs_tools_as_root_and_continues_after_a_failure(
    tmp_path: Path, user: int, before_test: set[str]
) -> None:
    for folder in ("bin", "scripts", ".ci", ".venv"):
        (tmp_path / folder).mkdir()
    shutil.copy(REPOSITORY / ".ci/run", tmp_path / ".ci/run")
    stand_ins = {
        "bin/id": f"echo {user}",
        "bin/apt-get": "exit 1",
        "scripts/setup": "",
        "scripts/test-tools": "echo tools >>done",
        "scripts/lint": "echo lint >>done; exit 3",
        "scripts/test": "echo test >>done",
    }
    for name, line in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run([tmp_path / ".ci/run"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "scripts/lint failed" in done.stderr
    *before, last = (tmp_path / "done").read_text().split()
    assert set(before) == before_test and last == "test"  # tools and lint run at the same time


def environment_after(checkout: Path, activation: str) -> dict[str, str]:
    output = subprocess.run(
        ["sh", "-c", f"VIRTUAL_ENV=$PWD/.venv; . .venv/bin/{activation}; env"],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return dict(line.partition("=")[::2] for line in output.splitlines())


def test_open_mpis_defaults_replace_only_their_own_block(checkout: Path) -> None:
    set_up(checkout)
    params = checkout / ".venv" / "etc" / "prte-mca-params.conf"
    first = params.read_text()
    assert "\nrmaps_default_mapping_policy = slot:oversubscribe\n" in first
    assert "\nhwloc_default_binding_policy = none\n" in first
    params.write_text(f"before = 1\n{first.replace('none', 'core')}after = 1\n")
    writer = [sys.executable, "scripts/openmpi_defaults.py", ".venv"]
    for _ in range(2):
        subprocess.run(writer, cwd=checkout, check=True)
        assert params.read_text() == f"before = 1\n{first}after = 1\n"


def test_activation_sets_open_mpis_variables(checkout: Path) -> None:
    set_up(checkout)
    environment = environment_after(checkout, "activate")
    assert environment["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert Path(environment["OMPI_PRTERUN"]).resolve() == checkout / "scripts" / "prterun"


def test_deactivation_unsets_them(tmp_path: Path) -> None:
    """In a real environment: the fake one has no deactivate."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    for _ in range(2):  # the second call replaces the block of the first
        subprocess.run(
            [sys.executable, "scripts/openmpi_defaults.py", tmp_path / "venv"], check=True
        )
    command = f". {tmp_path}/venv/bin/activate; env; echo; deactivate; env"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    active, _, inactive = done.stdout.partition("\n\n")
    assert "OMPI_PRTERUN=" in active
    assert "OMPI_" not in inactive


# exec, so that signals reach Python; a line `#!{sys.executable}` does not support spaces in it
PRTERUN = f"""#!/bin/sh
exec "{sys.executable}" -c '
import os, signal, sys, time

def say(line):
    os.write(1, line.encode() + b"\\n")

def stop(number, frame):
    say(signal.Signals(number).name)
    if number == signal.SIGTERM or sys.argv[1] == "obeys":
        sys.exit(0)

signal.signal(signal.SIGUSR1, stop)
signal.signal(signal.SIGTERM, stop)
say(" ".join(s.name for s in sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))))
time.sleep(60)
' "$@"
"""


def interrupted_prterun(
    folder: Path, program: str, behaviour: str, times: int
) -> tuple[int, list[str]]:
    """Interrupt scripts/prterun while it runs the program; return exit code and output lines."""
    (folder / "bin").mkdir()
    (folder / "bin" / "prterun").write_text(program)
    (folder / "bin" / "prterun").chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, REPOSITORY / "scripts" / "prterun", behaviour],
        env={"PATH": "/usr/bin:/bin", "OPAL_PREFIX": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        lines.append(process.stdout.readline())
    return process.wait(timeout=20), [line.strip() for line in lines]


def test_an_interruption_becomes_a_signal_that_mpirun_forwards(tmp_path: Path) -> None:
    code, lines = interrupted_prterun(tmp_path, PRTERUN, "obeys", times=1)
    assert lines == ["SIGHUP SIGINT SIGQUIT", "SIGUSR1"]
    assert code == 130


def test_a_second_interruption_ends_the_job(tmp_path: Path) -> None:
    code, lines = interrupted_prterun(tmp_path, PRTERUN, "ignores", times=2)
    assert lines[1:] == ["SIGUSR1", "SIGTERM"]
    assert code == 130


def test_the_exit_code_of_a_job_is_kept(tmp_path: Path) -> None:
    code, _ = interrupted_prterun(tmp_path, "#!/bin/sh\nexit 3\n", "fails", times=0)
    assert code == 3


IMPATIENT = {"PATIENCE_SECONDS": 0}


def run_prterun(
    folder: Path, program: str, *arguments: str | Path, constants: dict[str, float] = IMPATIENT
) -> subprocess.CompletedProcess[bytes]:
    """Run scripts/prterun with shorter timeouts on a program."""
    (folder / "bin").mkdir()
    (folder / "bin" / "prterun").write_text(f"#!/bin/sh\n{program}\n")
    (folder / "bin" / "prterun").chmod(0o755)
    script = (REPOSITORY / "scripts" / "prterun").read_text()
    for name, value in constants.items():
        script, count = re.subn(rf"(?m)^{name} = \d+", f"{name} = {value}", script)
        assert count == 1
    (folder / "script").write_text(script)
    return subprocess.run(
        [sys.executable, folder / "script", *(arguments or [folder / "child"])],
        env={"PATH": "/usr/bin:/bin", "OPAL_PREFIX": str(folder)},
        capture_output=True,
        timeout=30,
        check=False,
    )


def test_a_failed_job_does_not_wait_for_an_unreachable_host(tmp_path: Path) -> None:
    # like prterun's ssh, which waits and keeps the stream open
    program = 'echo "MPI_ABORT was invoked on rank 0" >&2; sleep 1000 & echo $! >"$1"; wait'
    done = run_prterun(tmp_path, program)
    assert done.returncode == 3 and b"a host is unreachable" in done.stderr
    state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(("code", "expected"), [(0, 3), (4, 4)])
def test_a_job_that_lost_a_daemon_fails(tmp_path: Path, code: int, expected: int) -> None:
    words = "PRTE has lost communication with a rem"
    program = f'printf "{words}" >&2; sleep 0.1; echo "ote daemon." >&2; exit {code}'
    assert run_prterun(tmp_path, program).returncode == expected


def test_all_output_of_ranks_is_forwarded(tmp_path: Path) -> None:
    done = run_prterun(tmp_path, 'printf "10%%\\r20%%\\rno newline" >&2')
    assert (done.returncode, done.stderr) == (0, b"10%\r20%\rno newline")


# heartbeats of edgeddl/heartbeat.py: rank, ranks, host, phase, timeout
BEAT = "printf '\\036edgeddl %s\\n' '{}' >&2; "
QUICK = {
    "PATIENCE_SECONDS": 1, "REPORT_SECONDS": 1, "SILENT_SECONDS": 2, "MARGIN_SECONDS": 1,
    "LONGEST_END_SECONDS": 3,
}  # fmt: skip
TRAIN = ("-np", "2", "python", "-m", "edgeddl.train")


def run_quickly(folder: Path, beats: list[str], then: str = "sleep 60", *options: str) -> str:
    """Return the output of a job that sends these heartbeats and then hangs."""
    program = "".join(BEAT.format(beat) for beat in beats) + then
    done = run_prterun(folder, program, *TRAIN, *options, constants=QUICK)
    assert done.returncode == 3, done.stderr
    assert b"edgeddl 0" not in done.stderr  # heartbeats are not shown
    return done.stderr.decode()


def test_the_rank_that_died_first_is_named(tmp_path: Path) -> None:
    """Open MPI aborts ranks that lose a connection, with exit code 14, and reports one of them."""
    lost = "echo '*** An error occurred in Socket closed' >&2; exit 14"
    said = run_quickly(tmp_path, ["1 3 pi-02 died 600", "2 3 pi-03 died 600"], lost)
    assert said.splitlines()[-1].startswith("error: rank 1 on pi-02 was killed or crashed")


def test_a_rank_that_ends_but_does_not_exit_is_named(tmp_path: Path) -> None:
    process = "env OMPI_COMM_WORLD_RANK=1 sleep 60 & wait"
    said = run_quickly(tmp_path, ["0 2 pi-01 ended 600", "1 2 pi-02 ended 600"], process)
    assert "waiting for the end of rank 1 on pi-02 (did not exit)" in said


def test_a_start_up_without_ranks_times_out(tmp_path: Path) -> None:
    """An idle connection to prterun's port has this effect."""
    said = run_quickly(tmp_path, [], "sleep 60", "--stall-timeout-seconds", "3")
    assert re.search(r"warning: waited \d s for mpirun to start the ranks", said)
    assert "the job ends after 3 s" in said and "ss -tnp" in said
    assert re.search(r"error: gave up after \d s of waiting for mpirun to start", said)


def test_a_rank_that_stops_before_mpi_init_is_named(tmp_path: Path) -> None:
    again = BEAT.format("0 2 pi-01 starting 4")
    said = run_quickly(
        tmp_path,
        ["0 2 pi-01 starting 4", "1 2 pi-02 starting 3"],
        f"for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; {again} done; sleep 60",
    )
    assert re.search(r"error: .* waiting for rank 1 on pi-02 \(no heartbeat\)\n", said)


def test_a_rank_that_is_not_started_is_named(tmp_path: Path) -> None:
    again = BEAT.format("0 2 pi-01 starting 4")
    said = run_quickly(tmp_path, [], f"while sleep 0.5; do {again} done")
    assert "waiting for rank 1 (not started)" in said


def test_a_hang_in_mpi_init_is_reported(tmp_path: Path) -> None:
    again = BEAT.format("0 1 pi-01 starting 4")
    said = run_quickly(tmp_path, [], f"while sleep 0.5; do {again} done")
    assert "waiting for MPI_Init; all 1 ranks are alive" in said and "ss -tnp" in said


def test_a_rank_that_stops_after_the_last_collective_is_named(tmp_path: Path) -> None:
    beats = ["0 2 pi-01 running 600", "1 2 pi-02 running 600", "0 2 pi-01 complete 600"]
    said = run_quickly(tmp_path, [*beats, "1 2 pi-02 complete 600", "0 2 pi-01 ended 600"])
    assert re.search(r"warning: waited \d s for the end of rank 1 on pi-02", said)
    assert re.search(r"error: the run is complete and saved, but gave up after 3 s", said)


def test_daemons_that_outlive_all_ranks_time_out(tmp_path: Path) -> None:
    said = run_quickly(tmp_path, ["0 1 pi-01 failed 600", "0 1 pi-01 ended 600"])
    assert "the end of mpirun: a host does not answer" in said


def test_a_job_without_any_heartbeat_times_out(tmp_path: Path) -> None:
    said = run_quickly(tmp_path, ["0 1 pi-01 running 3"])
    assert re.search(r"gave up after \d s of waiting for rank 0 on pi-01 \(no heartbeat\)", said)


def test_a_split_heartbeat_is_not_shown(tmp_path: Path) -> None:
    program = "printf 'one\\036edgeddl 0 1 pi' >&2; sleep 0.2; printf -- '-01 running 2\\ntwo' >&2"
    assert run_prterun(tmp_path, program).stderr == b"onetwo"


@pytest.mark.parametrize(
    ("arguments", "beats"), [(("sleep", "4"), []), (TRAIN, ["0 1 pi-01 running 600"])]
)
def test_running_jobs_are_not_ended(
    tmp_path: Path, arguments: tuple[str, ...], beats: list[str]
) -> None:
    """Programs without heartbeats, and training that makes progress."""
    program = "".join(BEAT.format(beat) + "sleep 2; " for beat in beats * 2) + "sleep 2"
    done = run_prterun(tmp_path, program, *arguments, constants=QUICK | {"SILENT_SECONDS": 9})
    assert (done.returncode, done.stderr) == (0, b"")


def test_boards_have_pinned_versions_of_all_dependencies() -> None:
    settings = ConfigParser()
    settings.read(REPOSITORY / "setup.cfg")
    lines = settings["options"]["install_requires"].split("\n")
    needed = [Requirement(line) for line in lines if line and not line.startswith("#")]
    text = (REPOSITORY / "ansible/roles/edgeddl/files/constraints.txt").read_text()
    pinned = dict(line.split("==") for line in text.split("\n") if "==" in line)
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    assert len(needed) > 5
    for one in needed:
        assert one.specifier.contains(versions[canonicalize_name(one.name)]), one
