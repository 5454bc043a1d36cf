"""What the planning tools are called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class PlanningNames:
    """The names of the four tools with a prefix before each, for instructions and errors that name them."""

    prefix: str = ""

    @property
    def setup(self) -> str:
        """Creates or replaces the plan."""
        return f"{self.prefix}planning_setup_plan"

    @property
    def add(self) -> str:
        """Appends steps."""
        return f"{self.prefix}planning_add_step"

    @property
    def update(self) -> str:
        """Changes a step."""
        return f"{self.prefix}planning_update_step"

    @property
    def read(self) -> str:
        """Reads the plan."""
        return f"{self.prefix}planning_read_plan"


__all__ = ["PlanningNames"]
