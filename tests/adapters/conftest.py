"""The contract's assertions show what they compared."""

import pytest

pytest.register_assert_rewrite("weakincentives.testing.adapter_contract")
