"""Tool calls as transactions: a runtime for LLM agents that must not leave a mess."""

__version__ = "0.1.0"
