"""What a quantization scheme is: a few plain functions and how their results are stored. Nothing here runs them."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, CaptureError, ShapeMismatch, Unsupported
from ..capture import Captured, capture
from ..capture.source import define, parameters
from .grouped import Grouped
from .storage import Stored, stored

Block = str | int | tuple[int, int]
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 16)
INDEX = "index"  # a last parameter of this name takes the position of the weight, row * K + column
WHOLE = -1  # a block's edge that is the whole dimension


@dataclass(frozen=True, eq=False)
class Definition:
    """How weights become codes and codes become weights.

    name           for people, files and error messages
    bits           of a code: 1 to 8, or 16
    block          what shares parameters: "tensor", "row", n (along a row), or (rows, columns). A size that does not
                   divide leaves a smaller last block
    params         {name: how it is stored}: "f32" "f16" "bf16" "e8m0" "e4m3" "e5m2", an integer type, Table(n), or
                   another scheme
    fit            fit(x) -> one value for each parameter; x is a block, row after row
    encode         encode(x, *params) -> code; a float loses its fraction, codes saturate, NaN is code 0
    decode         decode(code, *params) -> weight
    signed         whether codes are two's complement
    vector         how many neighbours along a row share a code
    encode_block   encode_block(x, codes, *params) fills the codes of one row of a block, where `encode` is not enough
    decode_block   decode_block(codes, x, *params) fills that row
    block_bytes    bytes that hold a whole block, parameters and all, in a layout of the scheme's own: codes are then
                   these bytes, and there are no params. encode_block may be left out: such a scheme only decodes
    grouped        instead of decode_block: how the bytes of a block fall apart into integers and scales

    Parameters reach encode and decode as they are stored: a scale kept as f16 is the rounded one. encode and decode
    may have one more parameter, `index`: the position of the weight in C order.
    """

    name: str
    bits: int
    block: Block
    params: Mapping[str, Any]
    fit: Callable[..., Any] | None = None
    encode: Callable[..., Any] | None = None
    decode: Callable[..., Any] | None = None
    signed: bool = False
    vector: int = dataclasses.field(default=1, kw_only=True)
    encode_block: Callable[..., Any] | None = dataclasses.field(default=None, kw_only=True)
    decode_block: Callable[..., Any] | None = dataclasses.field(default=None, kw_only=True)
    block_bytes: int | None = dataclasses.field(default=None, kw_only=True)
    grouped: Grouped | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(f"a scheme's name is a text, not {self.name!r}")
        if self.bits not in WIDTHS or isinstance(self.bits, bool):
            raise ArgumentError(f"{self.name}: codes of {self.bits!r} bits; 1 to 8 and 16 work")
        object.__setattr__(self, "params", dict(self.params or {}))
        for name in self.params:
            if not isinstance(name, str) or not name.isidentifier():
                raise ArgumentError(f"{self.name}: {name!r} is no name for a parameter")
        for stored_ in self.stored:
            if stored_.name in ("codes", INDEX):
                raise ArgumentError(f"{self.name}: no parameter may be called {stored_.name!r}")
        if self.params and self.fit is None:
            raise ArgumentError(f"{self.name}: parameters {', '.join(self.params)} need fit(x), which makes them")
        self._check_block()
        if self.block_bytes is not None:
            self._check_bytes()
            return
        if self.grouped is not None:
            raise ArgumentError(
                f"{self.name}: grouped tells how the bytes of a block fall apart; block_bytes is needed"
            )
        for one, other in (("encode", "encode_block"), ("decode", "decode_block")):
            if (getattr(self, one) is None) == (getattr(self, other) is None):
                raise ArgumentError(f"{self.name}: give {one} or {other}, one of them")

    def stored_reference(self) -> Any:
        """What a saved pipeline keeps: the name of a shipped scheme, or all that another one is made of."""
        from . import shipped

        return shipped.Reference(self.name) if shipped.is_shipped(self.name) else shipped.Own.of(self)

    def _check_bytes(self) -> None:
        """Raise ArgumentError for a scheme with a layout of its own that does not hang together."""
        if not isinstance(self.block, int) or self.bits != 8 or self.vector != 1 or self.signed or self.params:
            raise ArgumentError(
                f"{self.name}: block_bytes wants a block of n weights along a row, codes of 8 bits and no params"
            )
        if isinstance(self.block_bytes, bool) or not isinstance(self.block_bytes, int) or self.block_bytes < 1:
            raise ArgumentError(f"{self.name}: blocks of {self.block_bytes!r} bytes; 1 at least is needed")
        if self.encode is not None or self.decode is not None or (self.decode_block is None) == (self.grouped is None):
            raise ArgumentError(
                f"{self.name}: block_bytes wants decode_block or grouped, one of them, and encode_block where it encodes"
            )
        if self.grouped is not None and self.block % self.grouped.group:
            raise ArgumentError(f"{self.name}: groups of {self.grouped.group} do not divide blocks of {self.block}")

    def _check_block(self) -> None:
        edges = self.block if isinstance(self.block, tuple) else (1, self.block)
        if self.block not in ("tensor", "row"):
            if len(edges) != 2 or any(
                isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1 for n in edges
            ):
                raise ArgumentError(
                    f'{self.name}: block {self.block!r}; "tensor", "row", a number of weights along a row, or '
                    f"(rows, columns) work"
                )
            made = tuple(int(n) for n in edges) if isinstance(self.block, tuple) else int(self.block)
            object.__setattr__(self, "block", made)
        if isinstance(self.vector, bool) or not isinstance(self.vector, int) or not 1 <= self.vector <= 256:
            raise ArgumentError(f"{self.name}: {self.vector!r} neighbours share a code; 1 to 256 work")
        if self.vector > 1 and (self.encode is not None or self.decode is not None):
            raise ArgumentError(f"{self.name}: codes of {self.vector} weights need encode_block and decode_block")
        if self.edges[1] % self.vector and self.edges[1] != WHOLE:
            raise ArgumentError(
                f"{self.name}: blocks of {self.edges[1]} weights do not hold whole codes of {self.vector} weights"
            )

    def __repr__(self) -> str:
        if self.block_bytes is not None:
            only = "" if self.encodes else ", decodes only"
            return f"<scheme {self.name}: blocks of {self.block} weights in {self.block_bytes} bytes{only}>"
        stored_as = ", ".join(f"{k}: {getattr(v, 'name', v)}" for k, v in self.params.items())
        sign = "signed " if self.signed else ""
        share = f" for {self.vector} weights" if self.vector > 1 else ""
        return f"<scheme {self.name}: {sign}{self.bits}-bit codes{share}, block {self.block}, {stored_as or 'no parameters'}>"

    def replace(self, **changes: Any) -> Any:
        """A variant: the same scheme but for what is named. It needs a name of its own only if it is to be shipped."""
        known = [f.name for f in dataclasses.fields(self)]
        if wrong := set(changes) - set(known):
            raise ArgumentError(f"a scheme has no {', '.join(sorted(wrong))}; it has {', '.join(known)}")
        return dataclasses.replace(self, **changes)

    # Layout --------------------------------------------------------------------------------------------------------

    @property
    def edges(self) -> tuple[int, int]:
        """Rows and columns of a block; WHOLE where it is the whole dimension."""
        if self.block == "tensor":
            return WHOLE, WHOLE
        if self.block == "row":
            return 1, WHOLE
        return self.block if isinstance(self.block, tuple) else (1, int(self.block))

    def grid(self, rows: int, columns: int) -> tuple[int, int]:
        """How many blocks a matrix has, down and across: at least one each way unless it is empty."""
        down, across = self.edges
        return (
            min(rows, 1) if down == WHOLE else -(-rows // down),
            min(columns, 1) if across == WHOLE else -(-columns // across),
        )

    def codes_in_row(self, columns: int) -> int:
        """Codes of a row: bytes, where blocks have a layout of their own."""
        if self.block_bytes is not None:
            return -(-columns // int(self.block)) * self.block_bytes  # type: ignore[arg-type]
        return -(-columns // self.vector)

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of packed codes: one stream of bits, the first code in the lowest, padded to whole bytes."""
        return -(-self.codes_in_row(columns) * self.bits // 8)

    @property
    def code_range(self) -> tuple[int, int]:
        """The smallest and the largest code."""
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        """The parameters, in their order."""
        try:
            return tuple(stored(name, given) for name, given in self.params.items())
        except ArgumentError as error:
            raise ArgumentError(f"{self.name}: {error}") from None

    @property
    def nested(self) -> dict[str, Definition]:
        """Parameters that another scheme stores."""
        return {name: given for name, given in self.params.items() if isinstance(given, Definition)}

    @property
    def encodes(self) -> bool:
        """Whether there is a way to codes, and not only back."""
        return self.encode is not None or self.encode_block is not None

    @property
    def blockwise(self) -> bool:
        """Whether a whole row of a block is encoded at once."""
        return self.encode_block is not None

    # Functions -----------------------------------------------------------------------------------------------------

    @cached_property
    def captured_fit(self) -> Captured | None:
        """fit(x) as float32 source: it returns a tuple with one part for each parameter."""
        if self.fit is None:
            return None
        names = self._names("fit", self.fit, 1)
        kinds = tuple(p.result for p in self.stored)
        if kinds == ("f[]",):  # a lone table, with or without a tuple around it
            return self._capture("fit", self.fit, {names[0]: "f[]"}, returns=kinds)
        made = self._capture("fit", self.fit, {names[0]: "f[]"})
        if not isinstance(made.returns, tuple) and kinds == ("f",):  # fit may return a lone number
            return self._capture("fit", self.fit, {names[0]: "f[]"}, returns="f")
        if not isinstance(made.returns, tuple) or len(made.returns) != len(kinds):
            found = f"{len(made.returns)} values" if isinstance(made.returns, tuple) else "one number"
            raise CaptureError(
                f"{self._where('fit', self.fit)}: returns {found}; the parameters are "
                f"{', '.join(self.params) or 'none'}, so {len(kinds)} are needed"
            )
        return self._capture("fit", self.fit, {names[0]: "f[]"}, returns=kinds)

    @cached_property
    def captured_encode(self) -> Captured:
        if self.encode_block is not None:
            return self._captured_block("encode_block", self.encode_block, ("f[]", "i[]"))
        if self.encode is None:
            raise Unsupported(f"{self.name} only decodes: it has no encode_block, so nothing can be quantized with it")
        return self._captured_element("encode", self.encode, "f", None)

    @cached_property
    def captured_decode(self) -> Captured:
        if self.decode_block is not None:
            return self._captured_block("decode_block", self.decode_block, ("i[]", "f[]"))
        if self.grouped is not None:
            return self.captured_split("f[]" if self.grouped.table is None else "i[]")
        assert self.decode is not None
        return self._captured_element("decode", self.decode, "i", "f")

    def captured_split(self, integers: str) -> Captured:
        """grouped.split, which writes its integers as `integers`: "i[]", or "f[]" to go on in the same array."""
        if self.grouped is None:
            raise Unsupported(f"{self.name} has no codes in groups, so there is no split to capture")
        names = ["codes", "q", "scale", *(["offset"] if self.grouped.offset else [])]
        fn = self.grouped.split
        found = [p.name for p in parameters(define(fn)) if p.default is inspect.Parameter.empty]
        if len(found) != len(names):
            raise CaptureError(
                f"{self._where('split', fn)}: takes {', '.join(found) or 'nothing'}; split({', '.join(names)}) is needed"
            )
        kinds = dict(zip(found, ["i[]", integers, "f[]", "f[]"], strict=False))
        return self._capture("split", fn, kinds, writes=tuple(found[1:]))

    @property
    def encode_takes_index(self) -> bool:
        return self.encodes and self.captured_encode.parameters[-1] == INDEX

    @property
    def decode_takes_index(self) -> bool:
        return self.captured_decode.parameters[-1] == INDEX

    def _captured_element(self, role: str, fn: Callable[..., Any], first: str, returns: str | None) -> Captured:
        names = self._names(role, fn, 1 + len(self.stored))
        kinds = [first, *(p.kind for p in self.stored), "i"]
        made = self._capture(role, fn, dict(zip(names, kinds, strict=False)), returns=returns)
        if isinstance(made.returns, tuple):
            raise CaptureError(f"{self._where(role, fn)}: returns {len(made.returns)} values; one number is needed")
        return made

    def _captured_block(self, role: str, fn: Callable[..., Any], kinds: tuple[str, str]) -> Captured:
        names = self._names(role, fn, 2 + len(self.stored))
        given = dict(zip(names, [*kinds, *(p.kind for p in self.stored), "i"], strict=False))
        return self._capture(role, fn, given, writes=(names[1],))

    def _names(self, role: str, fn: Callable[..., Any], wanted: int) -> list[str]:
        """The function's parameters that have no default; one more may be `index`, but for fit."""
        found = [p.name for p in parameters(define(fn)) if p.default is inspect.Parameter.empty]
        if len(found) == wanted or (len(found) == wanted + 1 and found[-1] == INDEX and role != "fit"):
            return found
        block = {"encode_block": ["x", "codes"], "decode_block": ["codes", "x"], "decode": ["code"]}.get(role, ["x"])
        takes = block if role == "fit" else [*block, *self.params]
        raise CaptureError(
            f"{self._where(role, fn)}: takes {', '.join(found) or 'nothing'}; {role}({', '.join(takes)}) is needed"
        )

    def _capture(self, role: str, fn: Callable[..., Any], args: Mapping[str, str], **more: Any) -> Captured:
        try:
            return capture(fn, args, **more)
        except CaptureError as error:
            raise CaptureError(f"scheme {self.name!r}, {role}: {error}") from None

    def _where(self, role: str, fn: Callable[..., Any]) -> str:
        return f"scheme {self.name!r}, {role}: {define(fn).where()}"

    @cached_property
    def digest(self) -> str:
        """Hash of everything that codes and weights depend on."""
        parts: list[str] = [str((self.bits, self.block, self.signed, self.vector, self.stored))]
        if self.captured_fit is not None:
            parts.append(self.captured_fit.digest)
        if self.block_bytes is not None:
            parts.append(str((self.block_bytes, None if self.grouped is None else self.grouped.facts)))
        if self.encodes:
            parts.append(self.captured_encode.digest)
        parts.append(self.captured_decode.digest)
        parts += [f"{name}={nested.digest}" for name, nested in self.nested.items()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def as_matrix(shape: tuple[int, ...], what: str) -> tuple[int, int]:
    """Rows and columns of a tensor for a scheme: leading dimensions are rows, one after another."""
    if len(shape) == 0:
        raise ShapeMismatch(f"{what} is a single number; a vector, a matrix (N, K) or a stack of them works")
    rows = 1
    for n in shape[:-1]:
        rows *= n
    return rows, shape[-1]
