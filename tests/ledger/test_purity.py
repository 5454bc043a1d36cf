"""Which params are nothing but their text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any
from uuid import uuid4

import pytest
from pydantic import AfterValidator, BaseModel, Field, field_validator

from weakincentives.runtime.ledger.purity import is_pure


@dataclass(frozen=True)
class Inner:
    x: int = 1


@dataclass(frozen=True)
class Plain:
    a: str
    b: tuple[int, ...] = ()
    c: Inner | None = None
    d: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Constant:
    a: str
    b: tuple[int, ...] = ()
    c: Inner | None = None


@dataclass(frozen=True)
class WithPostInit:
    a: str

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class Deep:
    inner: tuple[WithPostInit, ...] = ()


@dataclass(frozen=True)
class Validated:
    a: Annotated[str, AfterValidator(lambda text: text + uuid4().hex)]


class Model(BaseModel):
    x: int


class FactoryModel(BaseModel):
    x: str = Field(default_factory=lambda: uuid4().hex)


class ValidatedModel(BaseModel):
    x: str

    @field_validator("x")
    @classmethod
    def check(cls, value: str) -> str:
        return value


@pytest.mark.parametrize("cls", [None, Constant, Model, Inner])
def test_plain_types_are(cls: Any) -> None:
    """Fields, constants as defaults, nested ones."""
    assert is_pure(cls)


@pytest.mark.parametrize("cls", [Plain, WithPostInit, Deep, Validated, FactoryModel, ValidatedModel])
def test_types_that_run_code_are_not(cls: Any) -> None:
    """However deep it is, and whether or not it would do any harm."""
    assert not is_pure(cls)
