"""QuantizedTensor: codes, parameters and the scheme that gives them meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.schemes.definition import Definition, as_matrix
from ...kernels.schemes.packing import pack, unpack
from ...primitives.errors import ArgumentError, ShapeMismatch, Unsupported
from . import running
from .running import Array, Encoded

if TYPE_CHECKING:
    from ...kernels.linear import CodeFormat


class QuantizedTensor:
    """A tensor in codes. Immutable; made by `Scheme.quantize`.

    scheme   what it was quantized with
    shape    of the tensor: leading dimensions are rows, blocks lie along the last
    codes    uint8 (N, row bytes): each row one stream of bits, the first code in the lowest
    params   {name: array of the stored type, (blocks down, blocks across)}; a QuantizedTensor where another scheme
             stores it
    """

    def __init__(self, scheme: Definition, encoded: Encoded, shape: tuple[int, ...], executor: Any = None) -> None:
        rows, columns = as_matrix(shape, "a quantized tensor")
        _check(scheme, encoded, rows, columns)
        self.scheme = scheme
        self.shape = tuple(int(n) for n in shape)
        self._encoded = encoded
        self._executor = executor

    # What it is ----------------------------------------------------------------------------------------------------

    @property
    def codes(self) -> Array:
        """The codes as they are stored: uint8 (rows, bytes of a row), packed."""
        return self._encoded.codes

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of all blocks by name; those kept by another scheme are QuantizedTensors."""
        found: dict[str, Any] = {}
        for name, kept in self._encoded.params.items():
            if isinstance(kept, Encoded):
                shape = (kept.codes.shape[0], kept.columns)
                found[name] = QuantizedTensor(self.scheme.nested[name], kept, shape, self._executor)
            else:
                found[name] = kept
        return found

    @property
    def ndim(self) -> int:
        """How many axes the tensor has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many weights the tensor has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def rows(self) -> int:
        """Rows of the tensor taken as a matrix: all axes but the last."""
        return as_matrix(self.shape, "a quantized tensor")[0]

    @property
    def nbytes(self) -> int:
        """Bytes of codes and parameters, those of other schemes included."""
        return self._encoded.nbytes

    @property
    def bits_per_weight(self) -> float:
        """Stored bits, parameters included, for each weight."""
        return 8 * self.nbytes / self.size if self.size else float(self.scheme.bits) / self.scheme.vector

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        sizes = " x ".join(map(str, self.shape))
        n = self.nbytes
        shown = f"{n / 2**20:.2f} MiB" if n >= 2**20 else f"{n / 2**10:.1f} KiB" if n >= 2**10 else f"{n} bytes"
        parts = ", ".join(f"{k} {getattr(v, 'name', v)}" for k, v in self.scheme.params.items()) or "no parameters"
        return (
            f"<QuantizedTensor {sizes}, {self.scheme.name}: {self.scheme.bits}-bit codes, block {self.scheme.block}, "
            f"{parts}; {self.bits_per_weight:.3f} bits a weight, {shown}>"
        )

    def integer_codes(self) -> Array:
        """The codes unpacked: int32, in the tensor's shape (with vector codes, the last axis counts codes)."""
        n = self.scheme.codes_in_row(self.shape[-1])
        return unpack(self.codes, self.scheme.bits, n, self.scheme.signed).reshape(*self.shape[:-1], n)

    # Weights -------------------------------------------------------------------------------------------------------

    def dequantize(self, out: Array | None = None) -> Array:
        """The weights, float32 in the tensor's shape; `out` is filled where it is given (contiguous float32)."""
        target = None
        if out is not None:
            if out.shape != self.shape or out.dtype != np.float32 or not out.flags.c_contiguous:
                raise ShapeMismatch(
                    f"out is {out.dtype} {out.shape}; a contiguous float32 array of shape {self.shape} is filled"
                )
            target = out.reshape(self.rows, self.shape[-1])
        made = running.dequantize(self.scheme, self._encoded, self.executor, target)
        return made.reshape(self.shape) if out is None else out

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        found = self.dequantize()
        return found if dtype is None else found.astype(dtype)

    def as_matrix(self) -> QuantizedTensor:
        """The same codes as a matrix, whose rows are all leading dimensions."""
        return QuantizedTensor(self.scheme, self._encoded, (self.rows, self.shape[-1]), self._executor)

    def loaded_params(self) -> dict[str, Array]:
        """The parameters as numbers: float32, or int32 where they are integers; other schemes decoded."""
        from ...kernels.reference.schemes import load

        kept = running.loaded(self.scheme, self._encoded.params, self.rows, self.shape[-1], self.executor)
        return {p.name: load(p, array) for p, array in zip(self.scheme.stored, kept, strict=True)}

    def matmul(self, a: Any, compute: str = "auto") -> Array:
        """a @ w.T for a matrix w (N, K): float32 (.., M, N), fused with the decoding.

        a         float32 (.., M, K), or (K,)
        compute   "f32", "bf16" or "int8"; "auto" is "f32". docs/schemes.md says what each computes
        """
        from .products import matmul

        return matmul(a, self, compute)

    @property
    def executor(self) -> Any:
        """What runs its products and decodes it."""
        return running.default_executor() if self._executor is None else self._executor

    # Parts and wholes ----------------------------------------------------------------------------------------------

    def __getitem__(self, where: Any) -> QuantizedTensor:
        """A part cut along whole blocks: slices of step 1, one for each axis from the first."""
        slices = where if isinstance(where, tuple) else (where,)
        if len(slices) > self.ndim or any(not isinstance(s, slice) or s.step not in (None, 1) for s in slices):
            raise ArgumentError(
                f"a quantized tensor of {self.ndim} axes is cut by as many slices of step 1; found {where!r}"
            )
        bounds = [s.indices(n)[:2] for s, n in zip([*slices, *[slice(None)] * self.ndim], self.shape, strict=False)]
        bounds = [(lo, max(lo, hi)) for lo, hi in bounds]
        found = self
        for axis, (lo, hi) in enumerate(bounds):
            if (lo, hi) != (0, self.shape[axis]):
                found = found._cut(axis, lo, hi)
        return found

    def _cut(self, axis: int, lo: int, hi: int) -> QuantizedTensor:
        shape = (*self.shape[:axis], hi - lo, *self.shape[axis + 1 :])
        if axis == self.ndim - 1:
            return QuantizedTensor(self.scheme, _columns(self.scheme, self._encoded, lo, hi), shape, self._executor)
        inner = int(np.prod(self.shape[axis + 1 : -1], dtype=np.int64))
        outer = int(np.prod(self.shape[:axis], dtype=np.int64))
        pieces = [
            _rows(self.scheme, self._encoded, (o * self.shape[axis] + lo) * inner, (o * self.shape[axis] + hi) * inner)
            for o in range(outer)
        ]
        return QuantizedTensor(self.scheme, _stacked(self.scheme, pieces), shape, self._executor)

    def linear_weights(self, compute: str) -> tuple[CodeFormat, dict[str, Array]] | None:
        """The codes as the step `linear` takes them, or None where it cannot: then weights are decoded first."""
        from .products import weights_of

        return weights_of(self, compute)

    # Files ---------------------------------------------------------------------------------------------------------

    def save(self, path: Any) -> None:
        """Write to a .npz or .safetensors file. Raises FileFormatError for another ending."""
        from .files import save

        save(path, {"": self})

    @staticmethod
    def load(path: Any, scheme: Definition | None = None) -> QuantizedTensor:
        """Read what `save` wrote. `scheme` is needed for a scheme that is not shipped: a file holds no functions.

        Raises FileFormatError where the file was written by another scheme, or is no such file.
        """
        from .files import load

        schemes = {} if scheme is None else {scheme.name: scheme}
        return load(path, schemes)[""]


def _rows(scheme: Definition, encoded: Encoded, lo: int, hi: int) -> Encoded:
    """Rows lo .. hi, which begin and end between blocks."""
    rows, down = encoded.codes.shape[0], scheme.edges[0]
    unit = rows if down < 0 else down
    if lo % unit or (hi % unit and hi != rows):
        raise ShapeMismatch(
            f"{scheme.name}: rows {lo} to {hi} cut through blocks of {unit} rows; cut at multiples of {unit}"
        )
    across = scheme.grid(rows, encoded.columns)[1]
    first, last = lo // unit, -(-hi // unit)
    params: dict[str, Array | Encoded] = {}
    for name, kept in encoded.params.items():
        if isinstance(kept, Encoded):
            inner = scheme.nested[name]
            if isinstance(inner.block, int):
                params[name] = _columns(inner, kept, first * across, last * across)
            else:
                params[name] = _rows(inner, kept, first, last)
        else:
            params[name] = kept[first:last].copy()
    return Encoded(encoded.codes[lo:hi].copy(), params, encoded.columns)


def _columns(scheme: Definition, encoded: Encoded, lo: int, hi: int) -> Encoded:
    """Columns lo .. hi, which begin and end between blocks."""
    rows, columns = encoded.codes.shape[0], encoded.columns
    unit = columns if scheme.edges[1] < 0 else scheme.edges[1]
    if (lo % unit if unit else lo) or (hi % unit and hi != columns):
        raise ShapeMismatch(
            f"{scheme.name}: columns {lo} to {hi} cut through blocks of {unit} columns; cut at multiples of {unit}"
        )
    first, last = lo // unit, -(-hi // unit)
    params: dict[str, Array | Encoded] = {}
    for name, kept in encoded.params.items():
        if not isinstance(kept, Encoded):
            params[name] = kept[:, first:last].copy()
        elif rows == 1 or not isinstance(scheme.nested[name].block, int):
            params[name] = _columns(scheme.nested[name], kept, first, last)
        else:
            raise Unsupported(
                f"{scheme.name}: {name!r} is stored by {scheme.nested[name].name} in blocks that run from row to row, "
                f"so columns cannot be cut out; cut rows, or quantize the part"
            )
    start, end = scheme.codes_in_row(lo), scheme.codes_in_row(hi)
    if start * scheme.bits % 8 == 0 and (end * scheme.bits % 8 == 0 or hi == columns):
        codes = encoded.codes[:, start * scheme.bits // 8 : -(-end * scheme.bits // 8)].copy()
    else:
        all_codes = unpack(encoded.codes, scheme.bits, scheme.codes_in_row(columns))
        codes = pack(all_codes[:, start:end], scheme.bits)
    return Encoded(codes, params, hi - lo)


def _stacked(scheme: Definition, pieces: Sequence[Encoded]) -> Encoded:
    """Pieces on top of each other; all but the last end with a whole block."""
    if len(pieces) == 1:
        return pieces[0]
    down = scheme.edges[0]
    for piece in pieces[:-1]:
        if down < 0 or piece.codes.shape[0] % down:
            block = "the whole tensor is one block" if down < 0 else f"blocks have {down} rows"
            raise ShapeMismatch(
                f"{scheme.name}: {piece.codes.shape[0]} rows cannot be followed by others, because {block}; "
                f"quantize the whole"
            )
    params: dict[str, Array | Encoded] = {}
    for name in scheme.params:
        parts: list[Any] = [p.params[name] for p in pieces]
        inner = scheme.nested.get(name)
        if inner is None:
            params[name] = np.concatenate(parts)
        else:
            join = _beside if isinstance(inner.block, int) else _stacked
            params[name] = join(inner, parts)
    return Encoded(np.concatenate([p.codes for p in pieces]), params, pieces[0].columns)


def _beside(scheme: Definition, pieces: Sequence[Encoded]) -> Encoded:
    """Pieces next to each other; all but the last end with a whole block."""
    if len(pieces) == 1:
        return pieces[0]
    across = scheme.edges[1]
    for piece in pieces[:-1]:
        if across < 0 or piece.columns % across:
            block = "a row is one block" if across < 0 else f"blocks have {across} columns"
            raise ShapeMismatch(
                f"{scheme.name}: {piece.columns} columns cannot be followed by others, because {block}; "
                f"quantize the whole"
            )
    params: dict[str, Array | Encoded] = {}
    for name in scheme.params:
        parts: list[Any] = [p.params[name] for p in pieces]
        inner = scheme.nested.get(name)
        if inner is None:
            params[name] = np.concatenate(parts, axis=1)
        elif pieces[0].codes.shape[0] == 1 or not isinstance(inner.block, int):
            params[name] = _beside(inner, parts)
        else:
            raise Unsupported(
                f"{scheme.name}: {name!r} is stored by {inner.name} in blocks that run from row to row, so columns "
                f"cannot be added; add rows, or quantize the whole"
            )
    columns = sum(p.columns for p in pieces)
    if all(scheme.codes_in_row(p.columns) * scheme.bits % 8 == 0 for p in pieces[:-1]):
        codes = np.concatenate([p.codes for p in pieces], axis=1)
    else:
        parts = [unpack(p.codes, scheme.bits, scheme.codes_in_row(p.columns)) for p in pieces]
        codes = pack(np.concatenate(parts, axis=1), scheme.bits)
    return Encoded(codes, params, columns)


def concatenate(tensors: Sequence[QuantizedTensor], axis: int = 0) -> QuantizedTensor:
    """Tensors of one scheme joined along an axis, without decoding: a cache of keys grows like this.

    Raises ShapeMismatch where a tensor that is followed by another ends inside a block, or sizes differ.
    """
    if not tensors:
        raise ArgumentError("nothing to concatenate; give one tensor at least")
    first = tensors[0]
    if not -first.ndim <= axis < first.ndim:
        raise ArgumentError(f"axis {axis} of a tensor with {first.ndim} axes; {-first.ndim} to {first.ndim - 1} work")
    axis %= first.ndim
    for t in tensors[1:]:
        if t.scheme is not first.scheme and t.scheme.digest != first.scheme.digest:
            raise ArgumentError(f"tensors of schemes {first.scheme.name} and {t.scheme.name} cannot be joined")
        if t.ndim != first.ndim or any(
            a != b for d, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if d != axis
        ):
            raise ShapeMismatch(f"shapes {first.shape} and {t.shape} differ beside axis {axis}")
    total = sum(t.shape[axis] for t in tensors)
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    scheme = first.scheme
    if axis == first.ndim - 1:
        joined = _beside(scheme, [t._encoded for t in tensors])
        return QuantizedTensor(scheme, joined, shape, first._executor)
    inner = int(np.prod(shape[axis + 1 : -1], dtype=np.int64))
    outer = int(np.prod(shape[:axis], dtype=np.int64))
    pieces = [
        _rows(scheme, t._encoded, o * t.shape[axis] * inner, (o + 1) * t.shape[axis] * inner)
        for o in range(outer)
        for t in tensors
    ]
    return QuantizedTensor(scheme, _stacked(scheme, pieces), shape, first._executor)


def _check(scheme: Definition, encoded: Encoded, rows: int, columns: int) -> None:
    """Whether codes and parameters are what the scheme has for rows x columns, those that other schemes store too."""
    grid = scheme.grid(rows, columns)
    codes = encoded.codes
    wanted: tuple[int, ...] = (rows, scheme.row_bytes(columns))
    if codes.dtype != np.uint8 or codes.shape != wanted or encoded.columns != columns:
        raise ShapeMismatch(
            f"{scheme.name}: {rows} x {columns} has codes uint8 {wanted}; found {codes.dtype} {codes.shape}"
        )
    if set(encoded.params) != set(scheme.params):
        raise ArgumentError(
            f"{scheme.name}: parameters {', '.join(encoded.params) or 'none'} where "
            f"{', '.join(scheme.params) or 'none'} are needed"
        )
    for p in scheme.stored:
        kept = encoded.params[p.name]
        inner = scheme.nested.get(p.name)
        if inner is not None and isinstance(kept, Encoded):
            _check(inner, kept, *((1, grid[0] * grid[1]) if isinstance(inner.block, int) else grid))
            continue
        wanted = (*grid, p.table) if p.table else grid
        if isinstance(kept, Encoded) or kept.shape != wanted or kept.dtype != p.numpy:
            found = "codes" if isinstance(kept, Encoded) else f"{kept.dtype} {kept.shape}"
            raise ShapeMismatch(f"{scheme.name}: parameter {p.name!r} is {found}; {p.dtype} {wanted} is needed")


def from_parts(
    scheme: Definition, codes: Array, params: Mapping[str, Any], shape: tuple[int, ...], executor: Any = None
) -> QuantizedTensor:
    """A tensor from arrays that something else made: packed codes, and parameters as the scheme stores them."""
    kept = {name: p._encoded if isinstance(p, QuantizedTensor) else np.asarray(p) for name, p in params.items()}
    return QuantizedTensor(scheme, Encoded(np.asarray(codes, np.uint8), kept, shape[-1]), shape, executor)
