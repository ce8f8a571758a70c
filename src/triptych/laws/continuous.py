"""A continuous draw as a program sees it: a number that is not known, on which it computes.

    X = shift + scale · core,   core = V^p, E^p, log E, Z or h(X')

with V uniform, E = -log V, Z normal and h a named monotone function. Arithmetic with
numbers stays in this family as long as it is monotone. A comparison with a number becomes a choice
by the length of an interval; comparisons of several draws become a race (`laws.races`). All else is
refused.

Small numbers that programs add against log(0), as 1e-10, are left out, and the search counts by how
much that moves the law: each moves it by at most its own size in total variation.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from triptych.laws import forms, races
from triptych.laws.forms import Monotone, raised
from triptych.laws.races import Source
from triptych.laws.search import refuse

NEGLIGIBLE = 1e-6


class Core(NamedTuple):
    """kind 'power' is V^p, 'time' E^p, 'log' log E, 'normal' Z; another one is h(inner)."""

    source: Source
    kind: str
    power: float = 1.0
    flipped: bool = False
    inner: "Draw | None" = None


class Draw:
    """shift + scale · core; everything Python does with a number, where it can be made finite."""

    __slots__ = ("core", "function", "scale", "shift")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from triptych.laws.doors import draw_arrays  # which builds on this module

        return draw_arrays.apply(ufunc, method, inputs, kwargs)

    def __init__(
        self, core: Core, shift: float = 0.0, scale: float = 1.0, function: Monotone | None = None
    ) -> None:
        self.core, self.shift, self.scale, self.function = core, shift, scale, function

    @property
    def source(self) -> Source:
        return self.core.source

    def __repr__(self) -> str:
        return f"<a continuous draw of {self.source.what}>"

    # ---- arithmetic

    def __neg__(self) -> "Draw":
        return Draw(self.core, -self.shift, -self.scale, self.function)

    def __pos__(self) -> "Draw":
        return self

    def __add__(self, other: object) -> "Draw | float":
        if isinstance(other, Draw):
            if not _same_core(self, other):
                raise refuse("two continuous draws are added; the law of their sum is not finite")
            return _affine(self, self.shift + other.shift, self.scale + other.scale)
        number = as_float(other)
        if number is None:
            return NotImplemented
        return _affine(self, self.shift + number, self.scale)

    __radd__ = __add__

    def __sub__(self, other: object) -> "Draw | float":
        if isinstance(other, Draw):
            return self + (-other)
        number = as_float(other)
        return NotImplemented if number is None else self + (-number)

    def __rsub__(self, other: object) -> "Draw | float":
        return -self + other

    def __mul__(self, other: object) -> "Draw | float":
        if isinstance(other, Draw):
            if _same_core(self, other) and self.shift == other.shift == 0:
                return power(self, 2.0) * (other.scale / self.scale)
            raise refuse("two continuous draws are multiplied; the law of that is not finite")
        number = as_float(other)
        if number is None:
            return NotImplemented
        return _affine(self, self.shift * number, self.scale * number)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> "Draw | float":
        if isinstance(other, Draw):
            raise refuse("a continuous draw is divided by another; the law of that is not finite")
        number = as_float(other)
        if number is None:
            return NotImplemented
        if number == 0:
            low, high = support(self)
            if low >= 0:
                return math.inf
            if high <= 0:
                return -math.inf
            raise refuse("a continuous draw of either sign is divided by 0")
        return _affine(self, self.shift / number, self.scale / number)

    def __rtruediv__(self, other: object) -> "Draw | float":
        number = as_float(other)
        if number is None:
            return NotImplemented
        return 0.0 if number == 0 else power(self, -1.0) * number

    def __pow__(self, exponent: object) -> "Draw | float":
        number = as_float(exponent)
        return NotImplemented if number is None else power(self, number)

    def __rpow__(self, basis: object) -> "Draw | float":
        number = as_float(basis)
        if number is None or number <= 0:
            return NotImplemented
        scaled = self * math.log(number)
        return exp(scaled) if isinstance(scaled, Draw) else math.exp(scaled)

    def __mod__(self, other: object) -> "Draw | float":
        number = as_float(other)
        if number is None:
            return NotImplemented
        return self - floor(_still_a_draw(self / number)) * number

    def __floordiv__(self, other: object) -> int:
        number = as_float(other)
        return NotImplemented if number is None else floor(_still_a_draw(self / number))

    def __abs__(self) -> "Draw | float":
        low, high = support(self)
        if low >= 0:
            return self
        if high <= 0:
            return -self
        return self if self > 0 else -self

    # ---- what becomes a choice

    def __lt__(self, other: object) -> bool:
        return less(self, other, False) if _is_number(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return less(self, other, True) if _is_number(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return not less(self, other, True) if _is_number(other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return not less(self, other, False) if _is_number(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draw) and _same_core(self, other) and _alike(self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return True  # 0 has no mass

    def __floor__(self) -> int:
        return floor(self)

    def __ceil__(self) -> int:
        return -floor(-self)

    def __trunc__(self) -> int:
        return floor(self) if self > 0 else -floor(-self)

    __int__ = __trunc__

    def __round__(self, digits: int | None = None) -> float | int:
        if digits is None:
            return floor(_still_a_draw(self + 0.5))
        scale = 10.0**digits
        return floor(_still_a_draw(_still_a_draw(self * scale) + 0.5)) / scale

    def __float__(self) -> NoReturn:
        raise refuse(
            f"a continuous draw ({self.source.what}) is used as a plain number here, outside what "
            "can be followed; compare it, or take an argmax, floor or order of it"
        )

    __index__ = __complex__ = __float__

    # ---- what numpy calls on arrays of objects

    def log(self) -> "Draw | float":
        return log(self)

    def log2(self) -> "Draw | float":
        return log(self) / math.log(2)

    def log10(self) -> "Draw | float":
        return log(self) / math.log(10)

    def log1p(self) -> "Draw | float":
        return log(_still_a_draw(self + 1))

    def exp(self) -> "Draw | float":
        return exp(self)

    def expm1(self) -> "Draw | float":
        return exp(self) - 1

    def sqrt(self) -> "Draw | float":
        return power(self, 0.5)

    def floor(self) -> int:
        return floor(self)

    def ceil(self) -> int:
        return self.__ceil__()

    def trunc(self) -> int:
        return self.__trunc__()

    def rint(self) -> int:
        return floor(_still_a_draw(self + 0.5))

    def tanh(self) -> "Draw":
        return monotone(self, forms.TANH)

    def conjugate(self) -> "Draw":
        return self


Value = Draw | float | int
"""What a cell of a lazy array holds: a continuous draw, or a plain number."""


def as_float(value: Any) -> float | None:
    """The number itself; None for what is none, such as an array."""
    if isinstance(value, int | float):
        return float(value)
    if hasattr(value, "__array__") or hasattr(value, "shape"):
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            return float(value.item())
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _still_a_draw(value: Value) -> Draw:
    """A shift, or a scale that is not 0, leaves a draw a draw."""
    if not isinstance(value, Draw):
        raise refuse("a continuous draw is scaled by 0 or by infinity")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, Draw) or as_float(value) is not None


# ------------------------------------------------------------------ fresh draws


def uniform(source: Source) -> Draw:
    return Draw(Core(source, "power"))


def exponential(source: Source) -> Draw:
    return Draw(Core(source, "time"))


def gumbel(source: Source) -> Draw:
    return Draw(Core(source, "log"), 0.0, -1.0)


def normal(source: Source) -> Draw:
    return Draw(Core(source, "normal"))


# ------------------------------------------------------------------ functions


def _same_core(a: Draw, b: Draw) -> bool:
    if a.core is b.core:
        return a.function is b.function
    x, y = a.core, b.core
    return (
        a.function is b.function
        and x.source is y.source
        and (x.kind, x.power, x.flipped) == (y.kind, y.power, y.flipped)
        and (x.inner is y.inner or (x.inner is not None and x.inner == y.inner))
    )


def _alike(a: Draw, b: Draw) -> bool:
    return a.shift == b.shift and a.scale == b.scale


def _affine(draw: Draw, shift: float, scale: float) -> Value:
    if math.isnan(shift) or math.isnan(scale):
        return math.nan
    if scale == 0 or math.isinf(shift):
        return shift
    if math.isinf(scale):
        low, high = support(draw)
        if low >= 0 or high <= 0:
            return math.copysign(math.inf, scale / draw.scale * (1 if low >= 0 else -1))
        raise refuse("a continuous draw of either sign is multiplied by infinity")
    return Draw(draw.core, shift, scale, draw.function)


def _settled(draw: Draw) -> Draw:
    """The same without a negligible shift, and as V = 1 - U where that has none."""
    core, shift, scale = draw.core, draw.shift, draw.scale
    if shift == 0:
        return draw
    if core.kind == "power" and core.power == 1 and scale * shift < 0:
        rest = shift + scale
        flipped = Draw(core._replace(flipped=not core.flipped), rest, -scale)
        if abs(rest) <= NEGLIGIBLE * abs(scale):
            return _settled(flipped)
    plain = core.kind in ("power", "time") and core.power == 1
    if plain and abs(shift) <= NEGLIGIBLE * abs(scale):
        core.source.search.leave_out(abs(shift / scale))
        return Draw(core, 0.0, scale)
    return draw


def power(draw: Draw, exponent: float) -> Value:
    """X^exponent, where X is positive."""
    if exponent == 1:
        return draw
    if exponent == 0:
        return 1.0
    settled = _settled(draw)
    core = settled.core
    if settled.shift == 0 and core.kind in ("power", "time"):
        sign = 1.0
        if settled.scale < 0:
            if not exponent.is_integer():
                return math.nan
            sign = -1.0 if exponent % 2 else 1.0
        scale = sign * abs(settled.scale) ** exponent
        return Draw(core._replace(power=core.power * exponent), 0.0, scale)
    low, high = support(settled)
    if low >= 0:
        ends = sorted([raised(low, exponent), raised(high, exponent)])
        if exponent > 0:
            return monotone(
                settled, Monotone(f"power {exponent}", lambda y: raised(y, 1 / exponent), *ends)
            )
        negative = Monotone(
            f"-power {exponent}", lambda y: raised(-y, 1 / exponent), -ends[1], -ends[0]
        )
        return -monotone(settled, negative)
    raise refuse("a power is taken of a continuous draw of either sign")


def log(draw: Draw) -> Value:
    settled = _settled(draw)
    core = settled.core
    if settled.shift == 0 and settled.scale > 0 and settled.function is None:
        if core.kind == "power":  # log(s V^p) = log s - p E
            return Draw(
                Core(core.source, "time", 1.0, core.flipped), math.log(settled.scale), -core.power
            )
        if core.kind == "time":
            return Draw(
                Core(core.source, "log", 1.0, core.flipped), math.log(settled.scale), core.power
            )
    low, _ = support(settled)
    if low < 0:
        raise refuse("a logarithm is taken of a continuous draw that can be negative")
    return monotone(settled, forms.LOG)


def exp(draw: Draw) -> Value:
    core = draw.core
    if core.kind == "time" and core.power == 1:
        return Draw(
            Core(core.source, "power", -draw.scale, core.flipped), 0.0, math.exp(draw.shift)
        )
    if core.kind == "log":
        return Draw(Core(core.source, "time", draw.scale, core.flipped), 0.0, math.exp(draw.shift))
    return monotone(draw, forms.EXP)


def monotone(draw: Draw, function: Monotone) -> Draw:
    """An increasing function of a draw."""
    return Draw(Core(draw.source, "of", inner=draw), function=function)


def shared_map(draws: Sequence[Value]) -> list[Value]:
    """The same unknown increasing function of several draws, as softmax: it keeps their order."""
    together = Monotone("softmax", _not_inverted, -math.inf, math.inf)
    lowest = -math.inf  # of a score of -inf
    found: list[Value] = []
    for draw in draws:
        if isinstance(draw, Draw):
            found.append(monotone(draw, together))
        elif draw == lowest:
            found.append(lowest)
        else:
            raise refuse("a softmax mixes continuous draws with plain numbers")
    return found


def _not_inverted(value: float) -> float:
    if math.isinf(value):
        return value
    raise refuse(
        "a softmax of continuous draws is compared with a number; only the order of its values is "
        "known, as in an argmax"
    )


# ------------------------------------------------------------------ comparison with a number


def support(draw: Draw) -> tuple[float, float]:
    """The ends of what X can be, from what is known of its source."""
    low, high = draw.source.low, draw.source.high
    ends = sorted([_at(draw, low), _at(draw, high)])
    return ends[0], ends[1]


def _at(draw: Draw, u: float) -> float:
    """X where U is u."""
    core = draw.core
    if core.inner is not None:
        function = draw.function
        assert function is not None
        inside = _at(core.inner, u)
        value = forms.forward(function, inside)
    else:
        value = forms.value_at(core.kind, core.power, 1.0 - u if core.flipped else u)
    return draw.shift + draw.scale * value


def cut_at(draw: Draw, value: float) -> tuple[float, bool]:
    """(u, below): {X < value} is {U < u} if below, and else {U > u}."""
    core = draw.core
    y = (value - draw.shift) / draw.scale
    if core.inner is not None:
        function = draw.function
        assert function is not None
        if y <= function.low:
            u, below = (0.0, True)
        elif y >= function.high:
            u, below = (1.0, True)
        else:
            u, below = cut_at(core.inner, function.inverse(y))
    else:
        v, below = forms.cut_of(core.kind, core.power, y)
        u = v
        if core.flipped:
            u, below = 1.0 - v, not below
    return u, below == (draw.scale > 0)


def less(draw: Draw, other: object, or_equal: bool) -> bool:
    """Whether X < other, or X <= other: a choice where it is not known."""
    if isinstance(other, Draw):
        return before(draw, other)
    number = as_float(other)
    if number is None:
        raise refuse(f"a continuous draw is compared with a {type(other).__name__}")
    if math.isnan(number):
        return False
    if math.isinf(number):
        return number > 0
    u, below = cut_at(draw, number)
    u = _on_grid(draw.source, u, or_equal == below)
    return (races.piece(draw.source, [u]) == 0) == below


def _on_grid(source: Source, u: float, closed: bool) -> float:
    """A uniform of float16 or bfloat16 has few values, multiples of `grid`: cut between two."""
    if not source.grid:
        return u
    steps = u / source.grid
    return min(1.0, source.grid * (math.floor(steps) + 1 if closed else math.ceil(steps)))


def clamped(draw: Draw, low: float, high: float) -> Value:
    """X moved into [low, high]; an end that is hardly ever reached is left out, and counted."""
    for end, under in ((low, True), (high, False)):
        if math.isinf(end):
            continue
        u, below = cut_at(draw, end)
        mass = (
            min(max(u - draw.source.low, 0.0), 1.0)
            if below == under
            else max(draw.source.high - u, 0.0)
        )
        if 0 < mass <= NEGLIGIBLE:
            draw.source.search.leave_out(mass)
        elif mass > 0 and less(draw, end, False) == under:
            return end
    return draw


def place_among(draw: Draw, edges: Sequence[float], right: bool) -> int:
    """How many of the increasing `edges` are <= X (right) or < X: one choice."""
    if not edges:
        return 0
    cuts, belows = [], True
    for edge in edges:
        if math.isinf(edge):
            cuts.append(0.0 if (edge > 0) != cut_at(draw, 0.0)[1] else 1.0)
            continue
        u, belows = cut_at(draw, edge)
        cuts.append(_on_grid(draw.source, u, belows != right))
    rising = sorted(cuts)
    under = races.piece(draw.source, rising)
    return under if belows else len(edges) - under


def floor(draw: Draw) -> int:
    """The whole number at or below X: one choice among those that it can be."""
    low, high = support(draw)
    if math.isinf(low) and math.isinf(high):
        raise refuse("a continuous draw without ends is rounded to a whole number")
    if math.isinf(low):
        return -_ceiling_above(-draw)
    if math.isinf(high):
        least = math.floor(low)
        while not less(draw, least + 1, False):
            least += 1
        return least
    least, most = math.floor(low + 1e-12), math.ceil(high - 1e-12) - 1
    if most - least > 1_000_000:
        raise refuse(f"a continuous draw is rounded to one of {most - least + 1} whole numbers")
    return least + place_among(draw, [float(k) for k in range(least + 1, most + 1)], True)


def _ceiling_above(draw: Draw) -> int:
    least = math.floor(support(draw)[0])
    while not less(draw, least + 1, True):
        least += 1
    return least + 1


def before(a: Draw, b: Draw) -> bool:
    """Whether X_a < X_b."""
    if a.source is b.source:
        difference = _difference(a, b)
        if isinstance(difference, float):
            return difference < 0
        return less(_still_a_draw(difference), 0.0, False)
    (low_a, high_a), (low_b, high_b) = support(a), support(b)
    if high_a <= low_b:
        return True
    if high_b <= low_a:
        return False
    from triptych.laws import orders  # which builds on this module

    return orders.best([a, b], largest=False) == 0


def _difference(a: Draw, b: Draw) -> Value:
    if _same_core(a, b):
        return a - b
    raise refuse("two different functions of one continuous draw are compared")
