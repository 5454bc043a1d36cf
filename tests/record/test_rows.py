"""What stands in the rows of a run."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from weakincentives.filesystem import FileChanges
from weakincentives.prompt.changes import Changes, SliceDelta
from weakincentives.runtime.record.calls import _changes_data
from weakincentives.session.deltas import type_finder
from weakincentives.session.encoding import decode, encode

_PATHS = st.lists(st.text(max_size=5) | st.just("caf\udce9"), max_size=2).map(tuple)


@given(
    st.lists(st.builds(SliceDelta, st.text(max_size=5), st.integers(), st.booleans()), max_size=3).map(tuple),
    st.builds(FileChanges, _PATHS, _PATHS, _PATHS),
)
def test_changes_are_written_as_any_value_is(slices: tuple[SliceDelta, ...], files: FileChanges) -> None:
    """Writing them out by hand gives what is read back by their class."""
    changes = Changes(slices, files)
    data = _changes_data(changes)
    assert data == encode(changes)[0]
    assert decode(Changes, json.loads(json.dumps(data)), [], type_finder(())) == changes
