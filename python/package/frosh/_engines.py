"""What the adapters for Spark, Dask and Ray share: one sketch for each part of the data, then a tree of merges.

The worker number of a part is its number, so that a part that runs again after a failure gives the same bytes. Merges
take groups of `fan_in` neighbouring workers, level by level: the tree depends on the numbers only, not on which part is
ready first. With at most `fan_in` parts the result has the bytes of `frosh merge` on the sketches of all parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._sketch import Sketch

FAN_IN = 32

#: Settings of a `Sketch` that the adapters take as keyword arguments.
_SETTINGS = ("sketch_rows", "method", "metric", "block_rows", "sample_rows", "seed")


def settings(given: dict[str, Any]) -> dict[str, Any]:
    """Checks settings before any work is sent to a cluster."""
    for name in given:
        if name not in _SETTINGS:
            raise TypeError(f"unexpected argument {name!r}: the settings are {', '.join(_SETTINGS)}")
    Sketch(**given)
    return given


def check_fan_in(fan_in: int) -> int:
    if fan_in < 2:
        raise ValueError(f"fan_in = {fan_in} is not possible: a merge takes at least 2 sketches")
    return fan_in


def sketch_part(batches: Iterable[Any], worker: int, given: dict[str, Any], column: str | None = None) -> bytes | None:
    """The bytes of the sketch of one part; `None` if it has no rows."""
    # One thread: the engine runs as many parts at a time as it has cores.
    sketch = Sketch(worker=worker, n_jobs=1, **given)
    for batch in batches:
        sketch.update(batch, column=column)
    return sketch.to_bytes() if sketch.rows else None


def merge_bytes(parts: Iterable[bytes | None]) -> bytes | None:
    """Merges the bytes of sketches; `None` without any."""
    sketches = [Sketch.from_bytes(part, n_jobs=1) for part in parts if part is not None]
    if not sketches:
        return None
    return Sketch.merge(*sketches).to_bytes() if len(sketches) > 1 else sketches[0].to_bytes()


def finished(merged: bytes | None) -> Sketch:
    """The sketch for the caller."""
    if merged is None:
        raise ValueError("no rows were seen: there is nothing to learn from")
    return Sketch.from_bytes(merged)


def groups(items: list[Any], fan_in: int) -> list[list[Any]]:
    """Neighbouring items in groups of `fan_in`."""
    return [items[at : at + fan_in] for at in range(0, len(items), fan_in)]
