"""Errors of the library. Each also derives from the built-in error a caller would expect."""


class TileworkError(Exception):
    """Base of every error that tilework raises on purpose."""


class ShapeMismatch(TileworkError, ValueError):
    """Sizes or ranks that do not fit together."""


class SizeError(TileworkError, ValueError):
    """A run-time size that is unknown, contradictory or out of range."""


class DTypeMismatch(TileworkError, TypeError):
    """A data type that the receiver does not take."""


class LayoutError(TileworkError, ValueError):
    """Axes, strides or blocks that cannot describe the data, or that a kernel cannot take."""


class QuantizationError(TileworkError, ValueError):
    """Scales or zero points that stand for nothing: not finite, not positive, out of range, wrong length."""


class BufferAccessError(TileworkError, ValueError):
    """Writing what is read-only, or reading what is not aligned as promised."""


class AliasError(TileworkError, ValueError):
    """Memory that is written while something else reads or writes it."""


class PipelineError(TileworkError, ValueError):
    """A pipeline that is not well formed."""


class ArgumentError(TileworkError, ValueError):
    """An argument out of its range, missing, or of the wrong kind."""


class KernelNotFound(TileworkError, LookupError):
    """No implementation of a kernel on the backend that was asked for."""


class KernelFailed(TileworkError, RuntimeError):
    """A step whose kernel raised or returned a status; the step is named."""


class DeviceLost(KernelFailed):
    """A device that failed in a way that takes its memory along; nothing can run on it any more in this process."""


class OutOfDeviceMemory(TileworkError, MemoryError):
    """A buffer that a device has no room for; buffer, bytes asked and bytes free are named."""


class UnwrittenRead(TileworkError, RuntimeError):
    """A kernel read a buffer that nobody had written."""


class GuardViolation(TileworkError, RuntimeError):
    """A kernel wrote outside its buffer; the kernel and the buffer are named."""


class AccumulatorOverflow(TileworkError, OverflowError):
    """A sum that may not fit the accumulator; the message says which depth would."""


class CaptureError(TileworkError, TypeError):
    """A user's function that cannot be compiled; function, line and name are given."""


class Unsupported(TileworkError, NotImplementedError):
    """Something well defined that this version does not do; the nearest thing that works is named."""


class FileFormatError(TileworkError, ValueError):
    """A file that is truncated, malformed or of another format."""


class CacheError(TileworkError, RuntimeError):
    """The kernel cache can be neither read nor written as asked."""


class PluginError(TileworkError, ImportError):
    """What an installed package announces and does not deliver; the package and the entry point are named."""
