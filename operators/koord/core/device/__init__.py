"""Devices: what nodes have, what pods ask for, what they are given."""
