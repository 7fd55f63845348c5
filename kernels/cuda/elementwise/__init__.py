"""Element-by-element steps on CUDA."""

from .basic import add_element as add_element
from .basic import add_quantized_element as add_quantized_element
from .basic import clip_element as clip_element
from .basic import relu_element as relu_element
from .steps import elementwise_element as elementwise_element
from .steps import quantized_element as quantized_element
from .steps import refuses as refuses
