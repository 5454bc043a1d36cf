"""Seeded faults in typed data, contracts and what a session is told."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ALIASES = ("tests/serde/test_aliases.py",)
_DELTAS = ("tests/session/test_deltas.py",)
_VALUES = ("tests/ledger/test_values.py",)
_SAVED_TEXT = ("tests/session/test_saved_text.py",)
_TYPES = ("tests/prompt/test_tool_types.py",)
_CONTRACTS = ("tests/core/test_dbc.py",)

MUTANTS = [
    Mutant(
        "saved values are read by their aliases",
        "session/encoding.py",
        "validate_python(data, by_name=True, by_alias=False)",
        "validate_python(data)",
        _ALIASES,
    ),
    Mutant(
        "infinities are saved as null",
        "session/certain.py",
        "return isfinite(value)  #",
        "return True  #",
        _SAVED_TEXT,
    ),
    Mutant(
        "values that their class changes are saved unread",
        "session/certain.py",
        'schema.get("post_init") and cls not in _ONLY_CHECKING',
        "False",
        _SAVED_TEXT,
    ),
    Mutant(
        "items that are written together are not looked at",
        "session/encoding.py",
        "kinds.issuperset(map(type, map(attrgetter(name), items))) for",
        "True for",
        _DELTAS,
    ),
    Mutant(
        "items of a subclass are written together with the others",
        "session/encoding.py",
        "leaves is None or not frozenset({cls}).issuperset(map(type, items))",
        "leaves is None",
        _DELTAS,
    ),
    Mutant(
        "a number that is too long to be read is kept unread",
        "runtime/ledger/effects.py",
        "class_of(value) is declared and len(text) < _LONGEST_NUMBER and comes_back(value)",
        "class_of(value) is declared and comes_back(value)",
        _VALUES,
    ),
    Mutant(
        "a value is kept unread whatever its fields hold",
        "runtime/ledger/effects.py",
        "len(text) < _LONGEST_NUMBER and comes_back(value)",
        "len(text) < _LONGEST_NUMBER",
        _VALUES,
    ),
    Mutant(
        "a ledger reads its values by their aliases",
        "runtime/ledger/effects.py",
        "adapter_of(declared).validator.validate_json(text, by_name=True, by_alias=False)",
        "adapter_of(declared).validator.validate_json(text)",
        _ALIASES,
    ),
    Mutant(
        "dumps have the names of attributes",
        "serde/dumping.py",
        "json_names = [aliases.get(name, name) for name in names]",
        "json_names = names if aliases else list(names)",
        _ALIASES,
    ),
    Mutant(
        "dumps have what the class sets itself",
        "serde/dumping.py",
        "if field.init or computed or record is None]",
        "if field.init or computed or record]",
        _ALIASES,
    ),
    Mutant(
        "the schema asks for what the class sets itself",
        "serde/schema.py",
        '        return field.get("init") is not False',
        "        return True",
        _ALIASES,
    ),
    Mutant(
        "a limit in a dict is ignored",
        "serde/type_adapters.py",
        "        refuse_unread_metadata(cls, _callers_names)\n",
        "",
        _ALIASES,
    ),
    Mutant(
        "an annotated result is not understood",
        "prompt/handlers.py",
        "    hint = plain(hint)\n",
        "",
        _TYPES,
    ),
    Mutant(
        "a verdict with its text is taken as true",
        "dbc.py",
        "            return None if verdict else text or message\n",
        "            return None\n",
        _CONTRACTS,
    ),
    Mutant(
        "inherited methods break an invariant",
        "dbc.py",
        "        kept = _keeping(method if name in vars(cls)",
        "        if name not in vars(cls):\n            continue\n        kept = _keeping(method if name in vars(cls)",
        _CONTRACTS,
    ),
    Mutant(
        "subclasses break an invariant",
        "dbc.py",
        "        _cover_subclasses(cls, predicate, message)\n",
        "",
        _CONTRACTS,
    ),
    Mutant(
        "older duplicates stay",
        "session/reducers.py",
        "        if not older:\n            return Replace(replaced)\n",
        "        if older or place >= 0:\n            return Replace(replaced)\n",
        ("tests/session/test_dispatch.py",),
    ),
    Mutant(
        "sections do not get the session",
        "prompt/section.py",
        "        if self._session_kind is None or (session is None and self._session_optional):\n",
        "        session = None\n        if self._session_kind is None or self._session_optional:\n",
        ("tests/prompt/test_section.py",),
    ),
    Mutant(
        "a typed answer reaches no reducer",
        "loop/events.py",
        "            session.dispatch_value(event.output)\n",
        "            pass\n",
        ("tests/adapters/test_loop.py",),
    ),
    Mutant(
        "what reducers make of an inner answer survives its call",
        "loop/events.py",
        "            session.dispatch_value(event.output)\n        except",
        "            unowned_recorder(session)(event.output)\n        except",
        ("tests/adapters/test_loop.py",),
    ),
    Mutant(
        "our own events must be named",
        "session/saved.py",
        " or own_type(name)\n",
        "\n",
        ("tests/session/test_persist_own.py",),
    ),
]
