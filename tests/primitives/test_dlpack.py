"""DLPack capsules as any library may make them: without strides, from an offset, of another version, used already."""

import ctypes

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.primitives import dlpack, dtypes
from tilework.primitives.buffer import Buffer
from tilework.primitives.errors import BufferAccessError, DTypeMismatch, Unsupported
from tilework.primitives.memory import address_of

A = np.arange(24, dtype=np.int16).reshape(2, 3, 4)


def capsule(array=A, versioned=True, readonly=False, dtype=None, **changed):
    """A capsule over an array, some fields of its tensor changed."""
    made = dlpack.write(
        address_of(array), (1, 0), dtypes.get(dtype or array.dtype), array.shape, readonly, array, versioned
    )
    kind = dlpack._ManagedVersioned if versioned else dlpack._Managed
    name = b"dltensor_versioned" if versioned else b"dltensor"
    managed = kind.from_address(dlpack._pointer(made, name))
    for field, value in changed.items():
        setattr(managed if hasattr(managed, field) else managed.tensor, field, value)
    return made


class Gives:
    def __init__(self, made):
        self.made = made

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        return self.made


@pytest.mark.parametrize("versioned", [True, False])
def test_a_tensor_without_strides_is_contiguous(versioned):
    none = ctypes.POINTER(ctypes.c_int64)()
    found = dlpack.read_capsule(capsule(versioned=versioned, strides=none))
    assert found.shape == (2, 3, 4)
    assert found.strides == (12, 4, 1)
    assert not found.readonly
    assert_array_equal(Buffer.from_dlpack(Gives(capsule(versioned=versioned, strides=none))).numpy(), A, strict=True)
    assert dlpack.read_capsule(capsule(np.zeros((2, 0, 4), np.int8), strides=none)).strides == (4, 4, 1)


def test_written_capsules_say_what_they_hold():
    for array in (A, A.astype(np.uint8), A.astype(np.float64), A.astype(np.uint64)):
        found = dlpack.read_capsule(capsule(array))
        assert (found.dtype, found.shape, found.strides) == (dtypes.get(array.dtype), (2, 3, 4), (12, 4, 1))
        assert found.address == address_of(array)
        assert found.device == "cpu"
    assert dlpack.read_capsule(capsule(np.zeros((), np.uint8))).shape == ()
    assert dlpack.read_capsule(capsule(A.astype(np.uint8), dtype="f8e5m2")).dtype == "f8e5m2"
    assert dlpack.read_capsule(capsule(np.zeros((0, 3), np.int8), data=None)).address == 0
    assert dlpack.read_capsule(capsule(readonly=True)).readonly
    assert dlpack.read_capsule(capsule(byte_offset=6)).address == address_of(A) + 6
    with pytest.raises(BufferError, match=r"only DLPack 1\.0 can say"):
        capsule(readonly=True, versioned=False)
    with pytest.raises(BufferError, match="DLPack has no type for"):
        capsule(A.astype(np.uint8), dtype="u4")


def test_devices_are_known_by_their_number():
    assert dlpack.read_capsule(capsule(device=dlpack._Device(2, 3))).device == "cuda:3"
    assert dlpack.read_capsule(capsule(device=dlpack._Device(3, 0))).device == "cpu"
    with pytest.raises(Unsupported, match="device type 7"):
        dlpack.read_capsule(capsule(device=dlpack._Device(7, 0)))


def test_what_is_no_capsule_of_ours_is_refused():
    with pytest.raises(Unsupported, match=r"DLPack version 2\.5; versions below 2 are read"):
        dlpack.read_capsule(capsule(major=2, minor=5))
    for given in (None, A):
        assert not dlpack.is_capsule(given)
        with pytest.raises(BufferAccessError, match="no unused DLPack capsule"):
            dlpack.read_capsule(given, "somebody")
    assert dlpack.is_capsule(capsule())
    assert dlpack.is_capsule(capsule(versioned=False))
    for kind in (dlpack._Type(0, 16, 4), dlpack._Type(0, 4, 1), dlpack._Type(3, 16, 1)):
        with pytest.raises(DTypeMismatch, match="has no counterpart"):
            dlpack.read_capsule(typed(kind))


def typed(kind):
    made = capsule()
    dlpack._ManagedVersioned.from_address(dlpack._pointer(made, b"dltensor_versioned")).tensor.dtype = kind
    return made


STANDARD = (
    (0, "s8"), (1, "u8"), (6, "bool"), (7, "f8e3m4"), (8, "f8e4m3"), (9, "f8e4m3b11fnuz"), (10, "f8e4m3fn"),
    (11, "f8e4m3fnuz"), (12, "f8e5m2"), (13, "f8e5m2fnuz"), (14, "e8m0fnu"),
)  # fmt: skip


@pytest.mark.parametrize(("code", "name"), STANDARD)
def test_type_codes_are_those_of_the_standard(code, name):
    """enum DLDataTypeCode of dlpack.h, version 1.1."""
    assert dlpack.read_capsule(typed(dlpack._Type(code, 8, 1))).dtype == name
