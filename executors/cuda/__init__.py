"""Pipelines on CUDA: `CudaExecutor`, the graph that it makes of a plan, and what runs a graph."""

from .executor import CudaExecutor as CudaExecutor
from .graph import Graph as Graph
from .graph import Node as Node
from .plan import CudaPlan as CudaPlan
