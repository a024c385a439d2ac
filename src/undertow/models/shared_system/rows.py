"""Small matrices in rows of eight: orders 1 to 8 run through the same instructions.

A matrix of order d ≤ 8 is stored as (8, 8) with zeros beyond its first d rows and columns. Loops over rows run to d, a
row is always eight numbers written out, which the compiler turns into one or two vector instructions. Nothing is
compiled per order.
"""

from undertow.compiled.kernel import inlined
from undertow.support.checks import FloatArray

__all__ = ["WIDTH", "ZERO", "Row", "add_outer", "dot", "multiply", "plus", "put", "row", "times_rows"]

WIDTH = 8
ZERO = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

Row = tuple[float, float, float, float, float, float, float, float]


@inlined
def row(X: FloatArray, i: int) -> Row:
    """Return row i."""
    return X[i, 0], X[i, 1], X[i, 2], X[i, 3], X[i, 4], X[i, 5], X[i, 6], X[i, 7]


@inlined
def put(X: FloatArray, i: int, x: Row) -> None:
    """Write row i."""
    X[i, 0], X[i, 1], X[i, 2], X[i, 3] = x[0], x[1], x[2], x[3]
    X[i, 4], X[i, 5], X[i, 6], X[i, 7] = x[4], x[5], x[6], x[7]


@inlined
def plus(x: Row, a: float, y: Row) -> Row:
    """Return x + a y."""
    return (
        x[0] + a * y[0],
        x[1] + a * y[1],
        x[2] + a * y[2],
        x[3] + a * y[3],
        x[4] + a * y[4],
        x[5] + a * y[5],
        x[6] + a * y[6],
        x[7] + a * y[7],
    )


@inlined
def dot(x: Row, y: Row) -> float:
    """Return x'y."""
    return (
        (x[0] * y[0] + x[4] * y[4])
        + (x[1] * y[1] + x[5] * y[5])
        + ((x[2] * y[2] + x[6] * y[6]) + (x[3] * y[3] + x[7] * y[7]))
    )


@inlined
def times_rows(x: FloatArray, at: int, Y: FloatArray, d: int) -> Row:
    """Return x'Y for row `at` of x."""
    total = ZERO
    for h in range(d):
        total = plus(total, x[at, h], row(Y, h))
    return total


@inlined
def multiply(X: FloatArray, Y: FloatArray, d: int, out: FloatArray) -> None:
    """Write XY."""
    for i in range(d):
        put(out, i, times_rows(X, i, Y, d))


@inlined
def add_outer(X: FloatArray, a: float, x: FloatArray, at: int, y: Row, d: int) -> None:
    """Add a x y' to X, for row `at` of x."""
    for i in range(d):
        put(X, i, plus(row(X, i), a * x[at, i], y))
