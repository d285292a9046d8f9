"""How good codes are, against exact neighbours or class labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _native
from ._estimator import encoding_values
from ._inputs import START_VALUES, pieces, row_count, whole, widened
from ._models import Model
from ._progress import Progress, reporting

_PIECE = 8 << 20


def exact_neighbours(
    base: Any,
    queries: Any,
    k: int = 10,
    *,
    metric: str = "l2",
    n_jobs: int | None = None,
    progress: Progress = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` nearest rows of each query by exact distance: row numbers and squared distances, nearest first.

    For cosine, distances are those of the rows scaled to length 1.

    >>> base = np.array([[0, 0], [1, 0], [5, 5]], np.float32)
    >>> ids, distances = frosh.exact_neighbours(base, [[1.0, 1.0]], k=2)
    >>> ids.tolist(), distances.tolist()
    ([[1, 0]], [[1.0, 2.0]])
    """
    rows = row_count(base)
    if k < 0:
        raise ValueError(f"k = {k} is not possible: it must not be negative")
    search = _native.ExactSearch(whole(queries), min(k, rows if rows is not None else 2**24), metric, n_jobs)
    with reporting(progress, rows, "exact search") as report:
        for first, piece in pieces(base, most=_PIECE):
            search.push(piece, first)
            report(piece.shape[0])
    ids, distances = search.finish()
    return ids.astype(np.int64), distances


def evaluate(
    hasher: Model,
    base: Any,
    queries: Any = None,
    *,
    labels: ArrayLike | None = None,
    query_labels: ArrayLike | None = None,
    truth: float | int | str = "2%",
    k: Sequence[int] = (1, 10, 100),
    ranking: str | Sequence[str] | None = None,
    oversample: int = 4,
    held_out: int | None = None,
    seed: int = 0,
    column: str | None = None,
    n_jobs: int | None = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Measures a fitted model: MAP, recall, and recall after re-ranking. The figures are those of `frosh eval --json`.

    Parameters
    ----------
    hasher : Hasher or Quantizer
        A fitted model.
    base : rows
        What is searched. It is read twice or three times, so it cannot be an iterator.
    queries : rows, optional
        Without them, `held_out` rows of the base are the queries (300 if there are enough), chosen by `seed`.
    labels, query_labels : optional
        Classes of the rows of the base and of the queries: rows of the query's class are relevant. With held-out
        queries, `labels` has one class for each row of the base, those held out too.
    truth : optional
        Which rows are relevant for MAP without labels: a share such as "2%" or 0.02, or a number of nearest rows.
    k : numbers
        The k of recall@k, or of precision@k with labels.
    ranking : optional
        Rankings to measure; by default every one that the model can.
    oversample : int
        Candidates for each neighbour, for recall after re-ranking.

    >>> X = np.random.default_rng(0).standard_normal((1000, 32), dtype=np.float32) @ np.diag(1 / np.arange(1.0, 33))
    >>> result = frosh.evaluate(frosh.Hasher(n_bits=16).fit(X), X, held_out=50)
    >>> sorted(result["rankings"]), result["queries"], result["base"]
    (['asymmetric', 'estimated', 'hamming'], 50, 950)
    >>> 0.2 < result["rankings"]["hamming"]["map"] < 1
    True
    """
    if hasattr(base, "__next__"):
        raise TypeError("the base is read more than once, so it cannot be an iterator")
    model = hasher._model()
    rows = row_count(base)
    if rows is None:
        rows = sum(piece.shape[0] for _, piece in pieces(base, column))
    held = np.empty(0, np.int64)
    if queries is None:
        wanted = min(rows // 2, 300) if held_out is None else held_out
        if wanted < 1:
            raise ValueError(f"cannot hold out {wanted} of {rows} rows as queries, at most half")
        held = np.asarray(_native.held_out(rows, wanted, seed), dtype=np.int64)
        asked = np.concatenate(
            [widened(piece[_inside(held, first, len(piece))]) for first, piece in pieces(base, column, _PIECE)]
        )
    elif held_out is not None:
        raise ValueError("give queries or held_out, not both")
    else:
        asked = whole(queries, column)
    hasher._check_features(asked.shape[1])

    def kept(what: str, start: int = START_VALUES) -> Any:
        with reporting(progress, rows, what) as report:
            for first, piece in pieces(base, column, _PIECE, start):
                inside = _inside(held, first, len(piece))
                part = np.delete(piece, inside, axis=0) if len(inside) else piece
                if len(part):
                    yield first, part
                report(len(piece))

    if ranking is None and model.kind == "quantizer":
        names = ["estimated"]
    elif ranking is None:
        names = ["hamming", "asymmetric"] + (["estimated"] if model.has_factors else [])
    else:
        names = [ranking] if isinstance(ranking, str) else list(ranking)
    factors = "estimated" in names
    encoder = hasher._encoder()
    parts = [encoder.encode(part, first, factors, n_jobs) for first, part in kept("encoding", encoding_values(model))]
    if not parts:
        raise ValueError("the base has no rows beside the queries")
    codes = _native.Codes.join(parts)
    del parts
    ks = [int(i) for i in k]
    if any(i < 1 for i in ks):
        raise ValueError(f"k = {ks} is not possible: numbers from 1 on")
    known: dict[str, Any] = {}
    if labels is None:
        share, nearest = _truth(truth)
        known = {"share": share, "nearest": nearest}
        relevant = _relevant(share, nearest, len(codes))
        deepest = max(relevant, min(max(ks, default=0), len(codes)))
        search = _native.ExactSearch(asked, deepest, model.metric, n_jobs)
        for first, part in kept("exact search"):
            search.push(part, first)
        known["neighbours"] = search.finish()[0]
    else:
        known["labels"] = _labels(labels, query_labels, held, len(codes), len(asked))
    projected = model.queries(asked, n_jobs)
    plain = model.bytes_per_row
    rankings: dict[str, Any] = {}
    for name in names:
        got = _native.measure(projected, codes, name, ks=ks, oversample=oversample, n_jobs=n_jobs, **known)
        line: dict[str, Any] = {
            "bytes_per_row": codes.stored_bytes_per_row if name == "estimated" else plain,
            "map": got["map"],
            "interpolated": got["interpolated"],
        }
        measures = ["recall", "recall_reranked"] if labels is None else ["precision"]
        for measure in measures:
            line[measure] = dict(zip(ks, got[measure]))
        if got["curve"] is not None:
            line["pooled_area"], line["curve"] = got["pooled_area"], got["curve"]
        rankings[name] = line
    return {
        "rankings": rankings,
        "queries": len(asked),
        "base": len(codes),
        "bits": model.bits,
        "truth": "labels" if labels is not None else truth,
        "oversample": oversample,
    }


def _inside(held: np.ndarray, first: int, rows: int) -> np.ndarray:
    """The held-out rows of a piece, counted in the piece."""
    a, b = np.searchsorted(held, [first, first + rows])
    return held[a:b] - first


def _truth(truth: float | int | str) -> tuple[float | None, int | None]:
    wrong = ValueError(f"truth = {truth!r} is neither a number of rows nor a share such as '2%' or 0.02")
    try:
        if isinstance(truth, str):
            share = float(truth[:-1]) / 100 if truth.endswith("%") else None
            nearest = int(truth) if share is None else None
        elif isinstance(truth, (int, np.integer)):
            share, nearest = None, int(truth)
        else:
            share, nearest = float(truth), None
    except (TypeError, ValueError):
        raise wrong from None
    if (share is not None and not 0 < share <= 1) or (nearest is not None and nearest < 1):
        raise wrong
    return share, nearest


def _relevant(share: float | None, nearest: int | None, rows: int) -> int:
    # As the library rounds: 0.29 * 100 is 29.
    return min(nearest, rows) if nearest is not None else min(int((share or 0) * rows * (1 + 1e-12)), rows)


def _labels(
    labels: ArrayLike, query_labels: ArrayLike | None, held: np.ndarray, base: int, queries: int
) -> tuple[list[int], list[int]]:
    of_base = np.asarray(labels).ravel()
    if len(held):
        if query_labels is not None:
            raise ValueError("held-out queries have their labels from the base: leave out query_labels")
        if len(of_base) != base + len(held):
            raise ValueError(f"there are {len(of_base)} labels for {base + len(held)} rows")
        of_queries, of_base = of_base[held], np.delete(of_base, held)
    elif query_labels is None:
        raise ValueError("labels of the base need query_labels too")
    else:
        of_queries = np.asarray(query_labels).ravel()
    if len(of_base) != base or len(of_queries) != queries:
        raise ValueError(f"there are {len(of_base)} and {len(of_queries)} labels for {base} rows and {queries} queries")
    # Any kind of label: equal ones get the same number.
    _, numbers = np.unique(np.concatenate([of_base, of_queries]), return_inverse=True)
    return numbers[base:].tolist(), numbers[:base].tolist()
