"""Whether a group is one user's alone, as many systems give one to each: then what it may write, only that user may.

Such systems set the umask to 002, so that a home and the directories in it are often writable by the group.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple


class User(NamedTuple):
    """A user as the system knows it."""

    name: str
    uid: int
    gid: int


class Group(NamedTuple):
    """A group as the system knows it, with the names of those who are in it beside those whose primary group it is."""

    name: str
    gid: int
    members: Collection[str] = ()


def is_private_group(group: Group, user: User, users: Iterable[User]) -> bool:
    """Whether nobody but the user is in the group: it has the user's name, is theirs, and has no other members.

    The name must agree, since not all users need to be known here: directories of large sites do not list them. Group 0
    is nobody's alone: containers run as users that no file knows in it.

    >>> anna, bert = User("anna", 1000, 1000), User("bert", 1001, 1001)
    >>> is_private_group(Group("anna", 1000), anna, [anna, bert])
    True
    >>> is_private_group(Group("anna", 1000, ["bert"]), anna, [anna, bert])
    False
    """
    return (
        group.gid == user.gid != 0
        and group.name == user.name
        and all(member == user.name for member in group.members)
        and not any(other.gid == group.gid and other.uid != user.uid for other in users)
    )


@lru_cache(maxsize=16)
def is_own_group(gid: int, uid: int) -> bool:
    """The same for a group and a user of this system; False for those that it does not know."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
        users = [User(each.pw_name, each.pw_uid, each.pw_gid) for each in pwd.getpwall()]
    except (KeyError, OSError):
        return False
    return is_private_group(
        Group(group.gr_name, group.gr_gid, group.gr_mem), User(user.pw_name, user.pw_uid, user.pw_gid), users
    )


def has_acl(path: str) -> bool:
    """Whether somebody else may have rights that the mode does not tell; True where that cannot be found out."""
    try:
        return any("acl" in name for name in os.listxattr(path))
    except (OSError, AttributeError):  # no extended attributes; not Linux
        return True


__all__ = ["Group", "User", "has_acl", "is_own_group", "is_private_group"]
