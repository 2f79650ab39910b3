"""``koord demo``: gangs on a real API server, watched from outside while it happens.

A user of everything else: it starts a sandbox, runs the operators as any cluster would, does with
kubectl what a user does, and believes only what it reads from the API server itself.
"""
