"""Replacing the Pods of one worker set without losing a request.

`planner` and `machine` decide, with a clock that they are given; `cluster`, `worker` and `forward`
are the edges to Kubernetes and to the workers; `runner` connects them; `command` is the program.
"""
