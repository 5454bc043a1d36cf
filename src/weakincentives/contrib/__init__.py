"""Batteries: tool suites, and the modules they share."""
