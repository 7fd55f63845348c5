"""What the element-by-element steps compute."""

from .basic import add as add
from .basic import add_quantized as add_quantized
from .basic import clip as clip
from .basic import relu as relu
