"""What is decided: pure rules over plain values, and the planner that joins them.

Nothing in here knows a socket, a clock, a log, a Kopf object or a pydantic model. Time is a number
handed in, randomness does not exist, and the same input gives the same answer to the byte.
"""
