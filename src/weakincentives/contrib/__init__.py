"""Batteries: tool suites that bring instructions, tools, policies and resources together."""
