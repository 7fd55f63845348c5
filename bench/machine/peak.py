"""What this machine can do at most, as benches call it: the probes of kernels/cpu/peak.py."""

from ...kernels.cpu.peak import Probe, dot, fma, read, triad

__all__ = ["Probe", "dot", "fma", "read", "triad"]
