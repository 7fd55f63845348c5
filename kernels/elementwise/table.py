"""The one table of element-by-element operations: what each takes, and how a tile function writes it.

What an operation computes on float32 is one written sequence (vectormath.py), which is definition, oracle and compiled
code at once; what it computes on integers and bool is said by kernels/reference/elementwise/whole.py. The expressions
here are over operand names in braces. `T(..)` stands for a conversion to the element type, which wraps.
"""

from __future__ import annotations

from dataclasses import dataclass

REAL = ("f32", "f16", "bf16")
SIGNED = ("s8", "s16", "s32", "s64")
UNSIGNED = ("u8", "u16", "u32", "u64")
WHOLE = (*SIGNED, *UNSIGNED)
DOUBLE = "f64"  # has what IEEE 754 itself defines to the last bit, and no written sequences
ANY = (*REAL, *WHOLE, "bool")


@dataclass(frozen=True)
class Operation:
    """One row.

    values    names of its operands
    real      expression on float32 (f16 and bf16 are widened, and the result rounded once); "" where there is none
    signed    expression on signed integers; unsigned, logic (bool) likewise
    numbers   float32 parameters with their usual values, which follow the values as operands of one element
    answer    type of the result: "same" (that of the operands) or "bool"
    condition whether the first operand is bool, whatever the others are
    """

    name: str
    values: tuple[str, ...]
    real: str = ""
    signed: str = ""
    unsigned: str = ""
    logic: str = ""
    numbers: tuple[tuple[str, float], ...] = ()
    answer: str = "same"
    condition: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """The element types that it takes."""
        return (
            *(REAL if self.real else ()),
            *((DOUBLE,) if self.double else ()),
            *(SIGNED if self.signed else ()),
            *(UNSIGNED if self.unsigned else ()),
            *(("bool",) if self.logic else ()),
        )

    @property
    def double(self) -> str:
        """The expression on float64; "" where there is none."""
        return _DOUBLE.get(self.name, "")

    def expression(self, dtype: str) -> str:
        if dtype in REAL:
            return self.real
        if dtype == DOUBLE:
            return self.double
        return self.signed if dtype in SIGNED else self.unsigned if dtype in UNSIGNED else self.logic


def _unary(name: str, real: str = "", signed: str = "", unsigned: str = "", **more: object) -> Operation:
    return Operation(name, ("x",), real, signed, unsigned, **more)  # type: ignore[arg-type]


def _sequence(name: str, **numbers: float) -> Operation:
    """A written sequence of one number and parameters."""
    arguments = ", ".join(["{x}", *(f"{{{n}}}" for n in numbers)])
    return Operation(name, ("x",), f"{name}({arguments})", numbers=tuple(numbers.items()))


def _binary(name: str, real: str = "", signed: str = "", unsigned: str = "", logic: str = "") -> Operation:
    return Operation(name, ("a", "b"), real, signed, unsigned or signed, logic)


def _compare(name: str, sign: str, logic: bool = False) -> Operation:
    text = f"{{a}} {sign} {{b}}"
    return Operation(name, ("a", "b"), text, text, text, text if logic else "", answer="bool")


def _bits(name: str, sign: str) -> Operation:
    text = f"T({{a}} {sign} {{b}})"
    return Operation(name, ("a", "b"), "", text, text, f"{{a}} {'!=' if sign == '^' else sign} {{b}}")


_SEQUENCES = (
    "exp exp2 log log2 log1p expm1 sqrt rsqrt reciprocal sin cos tan arcsin arccos arctan sinh cosh tanh asinh acosh "
    "atanh erf sigmoid silu gelu gelu_tanh softplus softsign mish hard_swish"
).split()

_CHOICE = "{a} if {condition} else {b}"

_DOUBLE = {
    **{name: f"{{a}} {sign} {{b}}" for name, sign in zip(("sub", "add", "mul", "div"), "-+*/", strict=True)},
    "equal": "{a} == {b}",
    "not_equal": "{a} != {b}",
    "less": "{a} < {b}",
    "less_equal": "{a} <= {b}",
    "greater": "{a} > {b}",
    "greater_equal": "{a} >= {b}",
    "minimum": "{a} if {a} <= {b} or {a} != {a} else {b}",
    "maximum": "{a} if {a} >= {b} or {a} != {a} else {b}",
    "where": _CHOICE,
    "neg": "-{x}",
    "abs": "abs({x})",
    "isnan": "{x} != {x}",
    "sqrt": "np.sqrt({x})",
    "floor": "np.floor({x})",
    "ceil": "np.ceil({x})",
    "trunc": "np.trunc({x})",
    "round": "np.rint({x})",
}

_ROWS = (
    _binary("sub", "{a} - {b}", "T({a} - {b})"),
    _binary("add", "{a} + {b}", "T({a} + {b})"),
    _binary("mul", "{a} * {b}", "T({a} * {b})"),
    _binary("div", "{a} / {b}", "T(quotient_signed({a}, {b}))", "T(quotient_unsigned({a}, {b}))"),
    _binary("mod", "fmod32({a}, {b})", "T(remainder_signed({a}, {b}))", "T(remainder_unsigned({a}, {b}))"),
    _binary("fmod", "fmod32({a}, {b})", "T(rest_signed({a}, {b}))", "T(remainder_unsigned({a}, {b}))"),
    _binary("pow", "power({a}, {b})", "T(power_signed({a}, {b}))", "T(power_unsigned({a}, {b}))"),
    _binary("minimum", "minimum({a}, {b})", "{a} if {a} < {b} else {b}", logic="{a} & {b}"),
    _binary("maximum", "maximum({a}, {b})", "{a} if {a} > {b} else {b}", logic="{a} | {b}"),
    _compare("equal", "==", logic=True),
    _compare("not_equal", "!=", logic=True),
    _compare("less", "<"),
    _compare("less_equal", "<="),
    _compare("greater", ">"),
    _compare("greater_equal", ">="),
    _bits("bitwise_and", "&"),
    _bits("bitwise_or", "|"),
    _bits("bitwise_xor", "^"),
    _binary("shift_left", "", "T(shifted_left({a}, {b}, BITS))"),
    _binary("shift_right", "", "T(shifted_right_signed({a}, {b}))", "T(shifted_right_unsigned({a}, {b}))"),
    _unary("bitwise_not", "", "T(~{x})", "T(~{x})", logic="not {x}"),
    _unary("neg", "-{x}", "T(-{x})", "T(-{x})"),
    _unary("abs", "fabs({x})", "T({x} if {x} >= 0 else -{x})", "{x}"),
    _unary("sign", "sign({x})", "T(1 if {x} > 0 else (-1 if {x} < 0 else 0))", "T(1 if {x} > 0 else 0)"),
    _unary("floor", "_floor({x})", "{x}", "{x}"),
    _unary("ceil", "ceil({x})", "{x}", "{x}"),
    _unary("trunc", "trunc({x})", "{x}", "{x}"),
    _unary("round", "rint({x})", "{x}", "{x}"),
    _unary("isnan", "{x} != {x}", answer="bool"),
    _unary("isinf", "isinf({x})", answer="bool"),
    *(_sequence(name) for name in _SEQUENCES),
    _sequence("elu", alpha=1.0),
    _sequence("celu", alpha=1.0),
    _sequence("selu", alpha=1.6732632423543772, gamma=1.0507009873554805),
    _sequence("swish", alpha=1.0),
    _sequence("hard_sigmoid", alpha=0.2, beta=0.5),
    _sequence("thresholded_relu", alpha=1.0),
    _sequence("shrink", bias=0.0, bound=0.5),
    Operation("leaky_relu", ("x", "slope"), "leaky_relu({x}, {slope})"),
    Operation("rotate", ("a", "b", "cos", "sin"), "{a} * {cos} - {b} * {sin}"),
    Operation("rotate_back", ("a", "b", "cos", "sin"), "{a} * {cos} + {b} * {sin}"),
    Operation("multiply_add", ("x", "factor", "term"), "multiply_add({x}, {factor}, {term})"),
    Operation("where", ("condition", "a", "b"), _CHOICE, _CHOICE, _CHOICE, _CHOICE, condition=True),
)

TABLE: dict[str, Operation] = {row.name: row for row in _ROWS}
