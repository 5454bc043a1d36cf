"""What `wink demo` shows of prompts."""

from __future__ import annotations

from weakincentives._demo.deployment import show


def test_the_deployment_demo_shows_prompt_schemas_and_refusals() -> None:
    """The rendered prompt with its params, every tool's schema, and two constructions that are refused."""
    text = show()
    assert "    ## 1. Deployment\n\n    You deploy billing. Follow this workflow:" in text
    assert '"description": "Target environment."' in text
    assert all(f"  {name}: " in text for name in ("run_tests", "build", "deploy", "health_check"))
    assert "did you mean ${name}?" in text
    assert "'deploy' is declared twice: in section 'deployment' and in section 'emergency'" in text
