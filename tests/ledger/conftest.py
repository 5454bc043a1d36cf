"""A private PostgreSQL server, started when the first test asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from pwd import getpwnam
from uuid import uuid4

import pytest

from ..conftest import needs


def _binaries() -> Path | None:
    """The directory with `initdb` and `pg_ctl`: Debian keeps them off the path."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    found = shutil.which("initdb")
    if versions:
        return versions[-1].parent
    return Path(found).resolve().parent if found else None


class Server:
    """A PostgreSQL server in a directory of its own, reached by a socket there."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self.directory = Path(tempfile.mkdtemp(prefix="wink-pg-"))
        self._as: list[str] = []
        if os.geteuid() == 0:  # the server refuses to run as root
            user = "nobody"
            with suppress(KeyError):
                user = getpwnam("postgres").pw_name
            os.chown(self.directory, getpwnam(user).pw_uid, getpwnam(user).pw_gid)
            self._as = ["runuser", "-u", user, "--"]
        self._run("initdb", "-D", str(self.directory / "data"), "-A", "trust", "-U", "wink", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-k {self.directory} -h '' -c fsync=off"  # nobody cuts the power here
        log = str(self.directory / "log")
        self._run("pg_ctl", "-D", str(self.directory / "data"), "-w", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.directory / "data"), "-w", "-m", mode, "stop")

    def database(self) -> str:
        """The DSN of a new, empty schema."""
        import psycopg

        name = f"w{uuid4().hex[:12]}"
        dsn = f"host={self.directory} user=wink dbname=postgres"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{dsn} options=-csearch_path={name}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._binaries / program), *arguments]
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
        assert done.returncode == 0, f"{program}: {done.stderr.decode(errors='replace')}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for the server is slow."""
    for item in items:
        if isinstance(item, pytest.Function) and "postgres_server" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One server for all tests of the run."""
    binaries = _binaries()
    driver = find_spec("psycopg") is not None
    get_it = "apt-get install postgresql; pip install 'psycopg[binary]'"
    needs("postgres", present=binaries is not None and driver, install=get_it)
    assert binaries is not None
    server = Server(binaries)
    try:
        yield server
    finally:
        with suppress(AssertionError):
            server.stop("immediate")
        shutil.rmtree(server.directory, ignore_errors=True)


@pytest.fixture
def postgres(postgres_server: Server) -> str:
    """The DSN of an empty database."""
    return postgres_server.database()
