"""A seal made of the standard library, for tests: what a program uses is a library's, such as AES-GCM."""

from __future__ import annotations

import hmac
import os
from hashlib import sha256, shake_256
from typing import final


@final
class HmacSeal:
    """Encrypts with a stream of SHAKE-256, then authenticates with HMAC: another nonce each time."""

    def __init__(self, key: bytes = b"a key of these tests") -> None:
        self._stream, self._mac = sha256(b"stream" + key).digest(), sha256(b"mac" + key).digest()

    def seal(self, content: bytes, /) -> bytes:
        nonce = os.urandom(16)
        sealed = nonce + self._mixed(nonce, content)
        return sealed + hmac.digest(self._mac, sealed, "sha256")

    def open(self, sealed: bytes, /) -> bytes:
        sealed, tag = sealed[:-32], sealed[-32:]
        if not hmac.compare_digest(hmac.digest(self._mac, sealed, "sha256"), tag):
            raise ValueError("sealed with another key, or changed since")
        return self._mixed(sealed[:16], sealed[16:])

    def _mixed(self, nonce: bytes, content: bytes) -> bytes:
        stream = shake_256(self._stream + nonce).digest(len(content))
        return (int.from_bytes(content) ^ int.from_bytes(stream)).to_bytes(len(content))


SEAL = HmacSeal()
