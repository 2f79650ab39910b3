"""The device agent: reports the devices of one node as its Device object, where no koordlet does.

It must not know the planner: both sides only share the object.
"""
