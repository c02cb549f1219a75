"""The local suite: in-context tasks of our own, from generators and from held-out documents.

It stands in for DCLM where those files are not at hand. Its tasks are called `local_*`; no score of it is a
DCLM score.
"""
