"""Claude Code as the loop: our tools and its own, all of them transactions."""

from .adapter import ClaudeAgentSDKAdapter

__all__ = ["ClaudeAgentSDKAdapter"]
