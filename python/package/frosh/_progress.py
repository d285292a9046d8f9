"""Progress of long calls: a callback, a bar of tqdm, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Union

#: `None` or `False` for nothing; `True` for a bar of tqdm; an object with `update(rows)`, such as a bar; or a function of
#: the rows done and all rows (`None` if unknown).
Progress = Union[None, bool, Callable[[int, Union[int, None]], Any], Any]


@contextmanager
def reporting(progress: Progress, total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """A function that is called with the number of rows of each piece."""
    if progress is None or progress is False:
        yield lambda rows: None
        return
    if progress is True:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ImportError("progress=True needs tqdm: pip install tqdm") from None
        with tqdm(total=total, desc=what, unit=" rows", unit_scale=True) as bar:
            yield lambda rows: _ignore(bar.update(rows))
        return
    if hasattr(progress, "update"):
        yield lambda rows: _ignore(progress.update(rows))
        return
    if not callable(progress):
        raise TypeError(f"progress is a function of (done, total), True or a bar, not {type(progress).__name__}")
    done = 0

    def call(rows: int) -> None:
        nonlocal done
        done += rows
        progress(done, total)

    yield call


def _ignore(_: Any) -> None:
    pass
