"""What runs inside the container, as its process 1. It is sent there as source text and imports nothing else of ours.

It must run on any Python from 3.8 on, and imports the standard library only.
"""
