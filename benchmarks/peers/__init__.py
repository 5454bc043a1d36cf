"""The same work in other frameworks: `make bench-peers`."""
