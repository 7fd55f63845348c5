"""Shapes that are none, and memory that there cannot be."""

import pytest

from tilework.primitives.buffer import Buffer
from tilework.primitives.errors import LayoutError, SizeError
from tilework.primitives.layout import LayoutSpec


@pytest.mark.parametrize("shape", [None, "12", "M", b"4", ((2, 3), 4), ("12",), (1,) * 65, True])
def test_a_layout_refuses_what_is_no_shape(shape):
    with pytest.raises(LayoutError):
        LayoutSpec(shape)


def test_more_bytes_than_addresses_are_refused():
    with pytest.raises(SizeError, match="more than there are addresses"):
        Buffer.empty((2**40, 2**40), "u8")
