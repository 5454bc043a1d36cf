"""What runs in the worker process of `AstevalBackend`, where it is sent as source text.

`main` keeps the worker going and gives up rights, `language` is what the code may do.
"""
