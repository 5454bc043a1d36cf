"""Signatures and annotations of users' functions and classes, also where their annotations cannot be evaluated.

From Python 3.14 on annotations are evaluated when they are looked at, so looking raises what they raise: NameError for
a name that is imported for type checkers only. What can be evaluated is; of the rest the text is returned, as for
annotations in quotes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, ForwardRef, cast, get_args

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    def signature_of(function: Callable[..., Any]) -> inspect.Signature:
        """As `inspect.signature`, with the text of a return annotation that cannot be evaluated.

        Raises TypeError or ValueError when there is no signature.
        """
        try:
            return inspect.signature(function)
        except Exception:  # noqa: BLE001 - annotations are users' code
            signature = inspect.signature(function, annotation_format=Format.FORWARDREF)
        returns = signature.return_annotation
        return signature.replace(return_annotation=returns.__forward_arg__ if type(returns) is ForwardRef else returns)

    def annotations_of(annotated: Any) -> dict[str, Any]:
        """The annotations of a function or class itself; the text of each that cannot be evaluated, or was quoted.

        Empty for what has none.
        """
        try:
            return get_annotations(annotated)
        except Exception:  # noqa: BLE001, S110 - annotations are users' code
            pass
        try:
            texts = get_annotations(annotated, format=Format.STRING)
            values = get_annotations(annotated, format=Format.FORWARDREF)
        except TypeError:
            return {}
        return {name: texts[name] if _is_unknown(value) else value for name, value in values.items()}

    def _is_unknown(hint: Any) -> bool:
        if isinstance(hint, (list, tuple)):
            return any(map(_is_unknown, cast("list[Any]", hint)))
        return isinstance(hint, ForwardRef) or any(map(_is_unknown, get_args(hint)))

else:
    signature_of: Callable[..., inspect.Signature] = inspect.signature

    def annotations_of(annotated: Any) -> dict[str, Any]:
        """The annotations of a function or class itself; the text of each that was quoted. Empty for what has none."""
        try:
            return inspect.get_annotations(annotated)
        except TypeError:
            return {}
