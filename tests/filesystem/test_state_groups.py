"""Directories above the private one that a group may write to: fine if no other user is in the group."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from weakincentives.filesystem.disk.private_dir import (
    Group,
    NotPrivateError,
    User,
    check_above,
    is_own_group,
    is_private_group,
)

ANNA, BERT = User("anna", 1000, 1000), User("bert", 1001, 1001)


@pytest.mark.parametrize(
    ("group", "others", "private"),
    [
        (Group("anna", 1000), [BERT], True),
        (Group("anna", 1000, ["anna"]), [BERT], True),
        (Group("anna", 1000, ["bert"]), [BERT], False),
        (Group("anna", 1000, ["anna", "bert"]), [BERT], False),
        (Group("anna", 1000), [User("bert", 1001, 1000)], False),
        (Group("anna", 1000), [User("alias", 1000, 1000)], True),
        (Group("users", 1000), [BERT], False),
        (Group("anna", 1002), [BERT], False),
        (Group("staff", 50, ["anna"]), [BERT], False),
    ],
)
def test_a_group_is_private_if_nobody_else_is_in_it(group: Group, others: list[User], private: bool) -> None:
    """It is the primary group, has the user's name, no other member, and is the primary group of no other user."""
    assert is_private_group(group, ANNA, [ANNA, *others]) is private


def test_the_first_group_is_nobodys_alone() -> None:
    """Containers run as users that are in no file, in group 0."""
    root = User("root", 0, 0)
    assert not is_private_group(Group("root", 0), root, [root])


def test_what_the_system_does_not_know_is_not_private() -> None:
    """A user or group without a name, as containers have."""
    assert not is_own_group(54321, os.geteuid())
    assert not is_own_group(os.getegid(), 54321)


def own(_gid: int, _uid: int) -> bool:
    return True


def others(_gid: int, _uid: int) -> bool:
    return False


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777, 0o1770])
def test_what_nobody_else_can_write_needs_no_group(tmp_path: Path, mode: int) -> None:
    """Sticky directories are fine as well."""
    tmp_path.chmod(mode)
    check_above(str(tmp_path), tmp_path.stat(), os.geteuid(), others)


def test_ones_own_group_may_write(tmp_path: Path) -> None:
    """A group of others may not, and the message says what to do."""
    tmp_path.chmod(0o775)
    check_above(str(tmp_path), tmp_path.stat(), os.geteuid(), own)
    with pytest.raises(NotPrivateError, match=rf"mode 775\); to change that: chmod go-w {tmp_path}"):
        check_above(str(tmp_path), tmp_path.stat(), os.geteuid(), others)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o702])
def test_ones_own_group_does_not_make_up_for_all_others(tmp_path: Path, mode: int) -> None:
    """What everybody may write to is never fine."""
    tmp_path.chmod(mode)
    with pytest.raises(NotPrivateError, match="can be written by others"):
        check_above(str(tmp_path), tmp_path.stat(), os.geteuid(), own)


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Whatever its mode and group."""
    found = os.stat_result((0o40700, 1, 1, 2, BERT.uid, ANNA.gid, 0, 0, 0, 0))
    with pytest.raises(NotPrivateError, match="belongs to another user"):
        check_above(str(tmp_path), found, ANNA.uid, own)


def acl(*entries: tuple[int, int, int]) -> bytes:
    """An access control list as the kernel takes it: tag, rights and id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_an_access_control_list_is_refused(tmp_path: Path) -> None:
    """It lets another user write, and only the bits of the group show it."""
    nobody = 0xFFFFFFFF
    tmp_path.chmod(0o700)
    granted = acl((1, 7, nobody), (2, 7, 12345), (4, 0, nobody), (16, 7, nobody), (32, 0, nobody))
    try:
        os.setxattr(tmp_path, "system.posix_acl_access", granted)
    except OSError as error:
        pytest.skip(f"this disk has no access control lists ({error.strerror})")
    assert tmp_path.stat().st_mode & 0o777 == 0o770
    with pytest.raises(NotPrivateError, match="can be written by others"):
        check_above(str(tmp_path), tmp_path.stat(), os.geteuid(), own)


_CHECK = """
import os, sys
from weakincentives.filesystem.disk import private_dir
os.setgroups([])  # only now: this user may not be let into the folder that holds the modules
os.setgid(4242)
os.setuid(4242)
os.umask(0o002)
print(private_dir.make(sys.argv[1]).path)
"""


def test_a_home_as_many_systems_make_it(tmp_path: Path) -> None:
    """A real user with a group of their own, umask 002 and a home of mode 775, if this machine may have one."""
    if os.geteuid() != 0 or subprocess.run(["which", "unshare"], check=False, capture_output=True).returncode:
        pytest.skip("only root can have other users in a mount namespace of its own")
    passwd, group = tmp_path / "passwd", tmp_path / "group"
    passwd.write_text("root:x:0:0::/root:/bin/sh\nanna:x:4242:4242::/nowhere:/bin/sh\n")
    group.write_text("root:x:0:\nanna:x:4242:\n")
    home = Path("/tmp") / f"wink-home-{os.urandom(8).hex()}"
    home.mkdir()
    try:
        os.chown(home, 4242, 4242)
        home.chmod(0o775)
        command = f'mount --bind {passwd} /etc/passwd && mount --bind {group} /etc/group && exec "$0" -c "$1" "$2"'
        arguments = ["unshare", "-m", "sh", "-c", command, sys.executable, _CHECK, str(home / ".local/state/wink")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment, cwd="/")
        if any(word in done.stderr for word in ("unshare", "mount:", "not permitted")):
            pytest.skip(f"no namespace or user here: {done.stderr}")
        assert done.stdout == f"{home}/.local/state/wink\n", done.stderr
    finally:
        subprocess.run(["rm", "-r", home], check=True)
