"""Laid out plans in the user's private cache folder: what a pipeline from a known file runs, ready to be run again.

A record holds the program's tables with marks where addresses go, the packed constants, and the machine code. It is found
by the hash of everything that it depends on, checked against a hash of its own, and mapped into memory; nothing of it is
unpickled or interpreted. Whatever else is asked of such a plan (`explain`, `profile`) makes the plan anew.
"""
