"""Seeded faults in what keeps undo state, ledgers, models and overrides to their owner."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_NAMES = ("tests/filesystem/test_reserved.py",)
_PRIVATE = ("tests/core/test_private_files.py",)
_WEIGHTS = ("tests/adapters/test_local_weights.py",)
_ASTEVAL = ("tests/contrib/test_asteval_section.py",)
_ADMIN = ("tests/filesystem/test_state_admin.py",)
_IMPORT = ("tests/filesystem/test_state_import.py",)
_GROUPS = ("tests/filesystem/test_state_groups.py",)
_ROOTS = ("tests/filesystem/test_state_roots.py",)

MUTANTS = [
    Mutant(
        "the private directory can be a root",
        "filesystem/root_checks.py",
        "or any((root + ",
        "or False and any((root + ",
        _ROOTS,
    ),
    Mutant(
        "a vault can be a root",
        "filesystem/root_checks.py",
        'if any(map(reserved, root.split("/"))) or ',
        "if ",
        _ROOTS,
    ),
    Mutant(
        "a container's folder is opened before it is refused",
        "contrib/podman/workspace.py",
        "            self._check_journal(state_dir)\n",
        "            HostFilesystem(self.root, state_dir=state_dir).close()\n"
        "            self._check_journal(state_dir)\n",
        _ROOTS,
    ),
    Mutant(
        "a vault that is in a container's folder already is not looked for",
        "filesystem/places.py",
        "return places.must_hide() or places.is_hidden()",
        "return places.must_hide()",
        _ROOTS,
    ),
    Mutant(
        "who waits for a ledger locks the root",
        "runtime/ledger/sqlite_queue.py",
        "                _lock(self._descriptor(), fcntl.F_RDLCK)\n",
        "                _lock(self._descriptor(), fcntl.F_RDLCK)\n"
        "                fcntl.flock(self._descriptor(), fcntl.LOCK_SH | fcntl.LOCK_NB)\n",
        _ROOTS,
    ),
    Mutant(
        "nobody is told that another process waits for a ledger",
        "runtime/ledger/sqlite_queue.py",
        "[0] != fcntl.F_UNLCK",
        "[0] == -1",
        _ROOTS,
    ),
    Mutant(
        "a group of several users counts as one's own",
        "filesystem/private_groups.py",
        "        and all(member == user.name for member in group.members)\n",
        "",
        _GROUPS,
    ),
    Mutant(
        "users whose primary group it is are not asked for",
        "filesystem/private_groups.py",
        "        and not any(other.gid",
        "        and True or not any(other.gid",
        _GROUPS,
    ),
    Mutant(
        "an access control list is not looked for",
        "filesystem/private_dir.py",
        "and not has_acl(path) and is_own_group",
        "and is_own_group",
        _GROUPS,
    ),
    Mutant(
        "one's own group makes up for all others",
        "filesystem/private_dir.py",
        "if writable == stat.S_IWGRP and",
        "if",
        _GROUPS,
    ),
    Mutant(
        "records of version 1 may be about undo state",
        "filesystem/old_journal.py",
        "    if any(reserved(part)",
        "    if False and any(reserved(part)",
        _IMPORT,
    ),
    Mutant(
        "an old journal that others can write is used",
        "filesystem/old_state.py",
        '            _check_owned(found, f"{path}/{JOURNAL}")\n',
        "",
        _IMPORT,
    ),
    Mutant(
        "an old image may be any file",
        "filesystem/old_state.py",
        'if record.operation == "delete" and found.st_ino != record.inode:',
        "if found.st_ino < 0:",
        _IMPORT,
    ),
    Mutant(
        "a process of version 1 is not excluded",
        "filesystem/old_state.py",
        "            sys.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        _IMPORT,
    ),
    Mutant(
        "an old journal is cut before its change is undone",
        "filesystem/old_state.py",
        "                names = reversal.undo(record)\n                self.sys.ftruncate(self._journal, start)\n",
        "                self.sys.ftruncate(self._journal, start)\n                names = reversal.undo(record)\n",
        _IMPORT,
    ),
    Mutant(
        "forgetting removes old files before the journal",
        "filesystem/state_admin.py",
        "    for name in (JOURNAL, MARKER):  # first",
        "    _drop_copies(entry)\n    for name in (JOURNAL, MARKER):  # first",
        _ADMIN,
    ),
    Mutant(
        "state is removed without the lock",
        "filesystem/kept_state.py",
        "                lock.lock(0.0)\n",
        "",
        _ADMIN,
    ),
    Mutant(
        "a renamed root counts as free",
        "filesystem/kept_state.py",
        "if inode and (holder := holder_of(inode)):",
        "if inode and (holder := 0):",
        _ADMIN,
    ),
    Mutant(
        "what was put aside is cleaned away",
        "filesystem/state_admin.py",
        "        if not left:\n            _drop_all(entry)\n",
        "        _drop_all(entry)\n",
        _ADMIN,
    ),
    Mutant(
        "a vault is known by its name",
        "filesystem/kept_state.py",
        "        return same and found",
        "        return found",
        _ADMIN,
    ),
    Mutant(
        "the key is replaced while it is needed",
        "filesystem/state_admin.py",
        "        _refuse_needed(home)\n",
        "",
        _ADMIN,
    ),
    Mutant(
        "a new key leaves the old directory of entries",
        "filesystem/private_dir.py",
        '        os.rename(made, path + "/roots")',
        "        os.rmdir(made)",
        _ADMIN,
    ),
    Mutant(
        "the key is read while it is replaced",
        "filesystem/private_dir.py",
        "        _share(fd, path)  # so that key and entries belong together\n",
        "",
        _ADMIN,
    ),
    Mutant(
        "a copy that was removed is used",
        "filesystem/mirror.py",
        "if self._of is not self._disk.state:",
        "if self._of is self:",
        _ADMIN,
    ),
    Mutant(
        "a lock that was removed is held",
        "filesystem/root_lock.py",
        "if not self._substituted or self._sys.fstat(self._fd).st_nlink:",
        "if True:",
        _ADMIN,
    ),
    Mutant(
        "plain paths are not asked for reserved names",
        "filesystem/paths.py",
        'if "wink" in rest.casefold():',
        'if "wink" in rest and False:',
        _NAMES,
    ),
    Mutant(
        "reserved names are told by their case",
        "filesystem/reserved.py",
        "        name = name.casefold()\n",
        "        pass\n",
        _NAMES,
    ),
    Mutant(
        "characters that are not shown make another name",
        "filesystem/reserved.py",
        '_ignorable.sub("", name)).casefold()',
        "name).casefold()",
        _NAMES,
    ),
    Mutant(
        "a first character that is not ASCII is not looked at",
        "filesystem/reserved.py",
        'if first != "." and first.isascii():',
        'if first != ".":',
        _NAMES,
    ),
    Mutant(
        "copies of trees have the undo state in them",
        "filesystem/staging.py",
        "if reserved(child):",
        "if False:",
        _NAMES,
    ),
    Mutant(
        "undo state can be mounted",
        "contrib/files/mounts.py",
        "if any(map(reserved, folder.parts)):",
        "if False:",
        _NAMES,
    ),
    Mutant(
        "undo state can be exported to",
        "contrib/files/export.py",
        "if any(map(reserved, folder.parts)):",
        "if False:",
        _NAMES,
    ),
    Mutant(
        "a new ledger is left to the umask",
        "runtime/ledger/sqlite_file.py",
        "        ensure_private(path)\n",
        "        pass\n",
        _PRIVATE,
    ),
    Mutant(
        "a ledger that others can read is reported each time",
        "runtime/ledger/sqlite_file.py",
        "    if path in _reported:\n        return\n",
        "",
        _PRIVATE,
    ),
    Mutant(
        "directories above are left to the umask",
        "private_files.py",
        "        missing.append(path)\n",
        "        missing.append(path)\n        path.parent.mkdir(parents=True, exist_ok=True)\n",
        _PRIVATE,
    ),
    Mutant(
        "new files follow a symlink",
        "private_files.py",
        "os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_CREAT | os.O_CLOEXEC",
        _PRIVATE,
    ),
    Mutant(
        "the adapter loads a model by its size",
        "adapters/local.py",
        "                self._verify()\n",
        "",
        _WEIGHTS,
    ),
    Mutant(
        "a model that was changed counts as fetched",
        "adapters/local_weights.py",
        "            return verify_weights(weights)\n",
        "            return path\n",
        _WEIGHTS,
    ),
    Mutant(
        "asteval runs code without the filter that is required",
        "contrib/evaluation/asteval_worker/main.py",
        "if required and not filtered:",
        "if False:",
        _ASTEVAL,
    ),
]
