"""An agent that deploys: what the model reads, what it may call, and what is refused before anything runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from weakincentives.errors import PromptValidationError
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
)


@dataclass(slots=True, frozen=True)
class Service:
    """What is deployed."""

    name: str


@dataclass(slots=True, frozen=True)
class DeployParams:
    """Parameters for deployment."""

    environment: Literal["development", "staging", "production"]
    """Target environment."""

    strategy: Literal["rolling", "blue-green", "canary"] = "rolling"
    """Deployment strategy."""


@dataclass(slots=True, frozen=True)
class StepDone:
    """The result of a step."""

    step: str

    def render(self) -> str:
        return f"{self.step}: done"


def _step(params: None, *, context: ToolContext) -> ToolResult[StepDone]:  # noqa: ARG001 - a handler's signature
    return ToolResult.ok(StepDone(context.tool_name or "step"))


def _deploy(params: DeployParams, *, context: ToolContext) -> ToolResult[StepDone]:  # noqa: ARG001
    return ToolResult.ok(StepDone(f"deploy to {params.environment}"))


run_tests = Tool[None, StepDone](name="run_tests", description="Run the test suite.", handler=_step)
build = Tool[None, StepDone](name="build", description="Build the artifacts.", handler=_step)
deploy = Tool[DeployParams, StepDone](
    name="deploy",
    description="Deploy the artifacts to an environment.",
    handler=_deploy,
    examples=[ToolExample("Deploy to staging", DeployParams("staging"), StepDone("deploy to staging"))],
)
health_check = Tool[None, StepDone](name="health_check", description="Check that the service answers.", handler=_step)

deployment = MarkdownSection[Service](
    title="Deployment",
    template="""
    You deploy ${name}. Follow this workflow:

    1. **Always run tests first** (`run_tests` tool)
    2. **Build artifacts** (`build` tool)
    3. **Deploy to staging** (`deploy` tool with `environment="staging"`)
    4. **Verify staging** (`health_check` tool)
    5. **Deploy to production** (`deploy` tool with `environment="production"`)

    Never deploy without testing. Never deploy directly to production.
    """,
    tools=[run_tests, build, deploy, health_check],
    policies=[SequentialDependencyPolicy(dependencies={"deploy": frozenset({"run_tests", "build"})})],
)
template = PromptTemplate[Any](ns="example", key="deployment", sections=[deployment])


def show() -> str:
    """The rendered prompt, its tools' schemas and two refusals, as text."""
    prompt = Prompt(template).bind(Service("billing"))
    rendered = prompt.render()
    parts = [f"What the model reads:\n\n{_indented(rendered.text)}", "What it may call:"]
    parts += [
        f"  {tool.name}: {tool.description}\n{_indented(json.dumps(tool.schema(), indent=2))}"
        for tool in rendered.tools
    ]
    parts.append("What is refused when it is built, before any model is asked:")
    parts += [f"  {refusal}" for refusal in (_misspelt_placeholder(), _two_tools_of_one_name(prompt))]
    return "\n\n".join(parts)


def _misspelt_placeholder() -> str:
    try:
        MarkdownSection[Service](title="Goal", template="Deploy ${nmae}.")
    except PromptValidationError as error:
        return str(error)
    raise AssertionError("a placeholder that does not exist was accepted")


def _two_tools_of_one_name(prompt: Prompt[Any]) -> str:
    try:
        prompt.bind(sections=[MarkdownSection(title="Emergency", tools=[deploy])])
    except PromptValidationError as error:
        return str(error)
    raise AssertionError("two tools of one name were accepted")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


if __name__ == "__main__":
    print(show())
