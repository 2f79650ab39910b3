"""How we talk to the cluster: credentials, one thin client, wire decoding, reflectors, writers.

Nothing in here decides: objects are turned into the values of ``koord.core``, and what the core
decided is written. Controllers and the runtime stand above and are not known here.
"""
