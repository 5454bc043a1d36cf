"""`wink sandbox image`: an image from packages or from what runs here, and what is said when it cannot be made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import needs

from weakincentives.cli import main
from weakincentives.contrib.podman import image as image_packages
from weakincentives.contrib.podman.image import build_image, have_image

pytestmark = pytest.mark.slow  # programs and containers

SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=512:512"]
log_driver = "none"
[engine]
runtime = "runc"
events_logger = "none"
cgroup_manager = "cgroupfs"
"""

LOOK = """
import bz2, ctypes, decimal, hashlib, json, lzma, os, sqlite3, ssl, sys, uuid, zlib
print(os.getuid(), os.getgid(), os.getcwd(), sys.version_info.major)
print([os.access(path, os.W_OK) for path in ("/workspace", "/tmp", "/etc", "/usr/bin")])
"""


def podman(*arguments: str, settings: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"CONTAINERS_CONF": str(settings)} if settings else {})}
    return subprocess.run(
        ["podman", *arguments], capture_output=True, text=True, env=environment, timeout=120, check=False
    )


@pytest.fixture
def name() -> Iterator[str]:
    """The name of an image that is gone after the test."""
    needs(
        "podman",
        present=shutil.which("podman") is not None,
        install="apt-get install --no-install-recommends podman runc",
    )
    made = f"localhost/wink-test-{os.getpid()}:latest"
    yield made
    podman("image", "rm", "--force", made)


def knows_packages() -> bool:
    return image_packages.have_apt() and "dash" in subprocess.check_output(["apt-cache", "pkgnames", "dash"], text=True)


@pytest.mark.parametrize("source", ["packages", "interpreter"])
def test_an_image_is_built_and_works(
    name: str,
    source: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both ways give an image with Python, a shell, the user and a workspace; a second run finds it there."""
    if source == "packages":
        needs("podman", present=knows_packages(), install="apt-get update")
    else:
        needs("podman", present=shutil.which("busybox") is not None, install="apt-get install busybox-static")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert main(["sandbox", "image", "--name", name, "--from", source]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Built in ")
    assert "Packing" in shown.err
    assert list(scratch.iterdir()) == []
    assert main(["sandbox", "image", "--name", name, "--from", source]) == 0
    assert capsys.readouterr() == (f"Already there: {name}\n", "")
    (tmp_path / "containers.conf").write_text(SETTINGS)
    locked = ["--network", "none", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
    script = "python3 -c \"$0\" && find / -xdev -perm /6000 -type f && echo 3 | awk '{ print $1 + 1 }' && which tar"
    done = podman("run", "--rm", *locked, name, "sh", "-c", script, LOOK, settings=tmp_path / "containers.conf")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1000 1000 /workspace 3", "[True, True, False, False]", "4", "/usr/bin/tar"]


def test_a_rebuilt_image_replaces_the_old_one(name: str) -> None:
    """The name moves to the new image, and nothing of the old one is kept."""
    if shutil.which("busybox") is None:
        pytest.skip("busybox is not here")
    assert not have_image(name)
    assert build_image(name, source="interpreter")
    before = podman("image", "ls", "--all", "--quiet", "--no-trunc").stdout.split()
    old = podman("image", "inspect", "--format", "{{.Id}}", name).stdout.strip()
    assert build_image(name, source="interpreter", rebuild=True)
    new = podman("image", "inspect", "--format", "{{.Id}}", name).stdout.strip()
    after = podman("image", "ls", "--all", "--quiet", "--no-trunc").stdout.split()
    assert new != old
    assert f"sha256:{old}" in before
    assert f"sha256:{old}" not in after


class Programs:
    """A PATH on which there is nothing but what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, script: str) -> None:
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    return Programs(folder)


NO_IMAGE = 'case "$1" in image) echo "no such image" >&2; exit 125;; esac'


def test_a_missing_podman_is_named(programs: Programs, capsys: pytest.CaptureFixture[str]) -> None:
    """Without podman the command that installs it is shown, and the exit code is 1."""
    assert main(["sandbox", "image"]) == 1
    assert "apt-get install --no-install-recommends podman runc" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["--privileged", "", "a b", "Big", "x" * 300])
def test_a_wrong_name_is_wrong_use(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that podman would take for an option, or for none, never reaches it."""
    with pytest.raises(ValueError, match="not a name for an image"):
        build_image(name)
    if name:
        assert main(["sandbox", "image", f"--name={name}"]) == 2
        assert "not a name for an image" in capsys.readouterr().err


def test_an_unknown_source_is_refused() -> None:
    """Only the named sources are taken."""
    with pytest.raises(ValueError, match="use auto, packages or interpreter"):
        build_image("localhost/x", source="registry")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("complaint", "said"),
    [
        ("E: Unable to locate package python3", "Run: apt-get update"),
        ("E: You don't have enough free space in /x/.", "set TMPDIR to a bigger place"),
        ("E: Failed to fetch x  404  Not Found", "--from interpreter"),
        ("E: Something else", "apt-get cannot bring the packages: E: Something else"),
        ("no word", "it failed without a word"),
    ],
)
def test_what_apt_cannot_do_is_explained(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str], complaint: str, said: str
) -> None:
    """Each way in which apt fails names what to do, and leaves no files."""
    programs.add("podman", NO_IMAGE)
    programs.add("dpkg-deb", "exit 1")
    programs.add("apt-cache", "exit 0")
    programs.add("apt-get", f'echo "{complaint}" >&2; exit 100')
    assert main(["sandbox", "image"]) == 1
    assert said in capsys.readouterr().err
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_broken_package_stops_the_import(programs: Programs, tmp_path: Path) -> None:
    """A package that cannot be unpacked fails the build, and podman never sees the end of the archive."""
    programs.add("podman", f'{NO_IMAGE}\n/bin/cat >/dev/null && echo imported >"{tmp_path}/imported"')
    programs.add("dpkg-deb", 'echo "not a package" >&2; exit 2')
    programs.add("apt-cache", "exit 0")
    programs.add("apt-get", 'for a; do case $a in Dir::Cache=*) : >"${a#Dir::Cache=}/archives/x_1.deb";; esac; done')
    with pytest.raises(OSError, match="cannot be unpacked: not a package"):
        build_image("localhost/x", source="packages")
    assert not (tmp_path / "imported").exists()
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("complaint", "said"),
    [
        ("Error: write /var/lib: no space left on device", "podman system prune"),
        ("Error: storage is broken", "podman cannot do it: storage is broken"),
    ],
)
def test_what_podman_cannot_do_is_explained(programs: Programs, complaint: str, said: str) -> None:
    """A failing import, also one that reads nothing, is told with podman's own words."""
    programs.add("podman", f'{NO_IMAGE}\necho "{complaint}" >&2; exit 125')
    programs.add("busybox", "echo sh")
    programs.add("ldd", "exit 0")
    with pytest.raises(OSError, match=said):
        build_image("localhost/x")
    programs.add("podman", f'echo "{complaint}" >&2; exit 125')
    with pytest.raises(OSError, match=said):
        have_image("localhost/x")


def test_what_is_missing_for_a_source_is_named(programs: Programs) -> None:
    """Packages need apt, the interpreter needs busybox; each error names the other way or the command."""
    programs.add("podman", f"{NO_IMAGE}\n/bin/cat >/dev/null")
    with pytest.raises(OSError, match="--from interpreter"):
        build_image("localhost/x", source="packages")
    with pytest.raises(OSError, match="apt-get install busybox-static"):
        build_image("localhost/x")


def test_an_interrupted_build_leaves_nothing(programs: Programs, tmp_path: Path) -> None:
    """Ctrl-C while packing kills the import before it could take half an image for a whole one."""
    programs.add("podman", f'{NO_IMAGE}\n/bin/cat >/dev/null && echo imported >"{tmp_path}/imported"')
    programs.add("busybox", "echo sh")

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_image("localhost/x", source="interpreter", report=interrupt)
    assert not (tmp_path / "imported").exists()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_command_is_quick_to_load() -> None:
    """Parsing the line does not import what builds images."""
    code = "import sys; from weakincentives.cli.main import build_parser; build_parser()"
    code += "; print(any('podman' in name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
