"""Names vulture cannot see used; each with its reason."""
