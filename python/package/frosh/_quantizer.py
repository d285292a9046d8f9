"""Codes beyond one bit a direction, with scikit-learn's conventions."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._codes import Codes
from ._estimator import Estimator, _Fit, check_length
from ._progress import Progress
from ._sketch import Sketch

#: Candidates that encoding keeps: by default and at most.
_EFFORT, _MOST_EFFORT = 8, 32


class Quantizer(Estimator):
    """Learns the codes of an additive quantiser, and makes them: more accuracy a byte than the sign bits of `Hasher`.

    Sign bits are much faster to encode, have Hamming distances, and work in other tools; the codes of a quantiser are
    searched by their estimated distance only. A fit needs at least 1,024 rows. Follows scikit-learn's conventions as
    `Hasher` does.

    Parameters
    ----------
    n_bytes : int
        Bytes of a code: from 4 to 64.
    effort : int
        How hard encoding searches for the best code: the number of candidates that it keeps, from 1 (fastest) to 32
        (most accurate). It does not change the model. Codes of any effort can be searched together.
    method : {"frosh", "frosh-sparse", "osh"}
        The algorithm that learns.
    metric : {"l2", "cosine"}
        How rows are compared.
    sketch_rows : int, optional
        Rows of the sketch: even. By default `8 * n_bytes`, but at least 128 and at most 256.
    block_rows : int, optional
        Rows of a compressed block: a power of two.
    sample_rows : int
        Sampled rows, which the codebooks are fitted to: at least 1,024, and at most 32 MB of them.
    seed : int
        Seed of all randomness.
    n_jobs : int, optional
        Threads: every core by default and for -1. It does not change results.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of the rows.
    n_components_ : int
        Number of directions that rows are projected on.
    singular_values_ : ndarray of shape (n_components_,)
        Singular values of the sketch along the principal directions. Estimates from below.
    explained_variance_ratio_ : ndarray of shape (n_components_,)
        Share of the sampled rows' variance along each principal direction.
    n_samples_seen_ : int
        Rows that were learned from.
    n_features_in_ : int
        Values of a row.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if the first rows were a data frame with names.
    choice_ : dict or None
        What the fit measured on its sample, and the recall it expects.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((2000, 32), dtype=np.float32)
    >>> quantizer = frosh.Quantizer(n_bytes=8)
    >>> for batch in np.array_split(X, 7):           # any batch size gives the same bytes
    ...     quantizer = quantizer.partial_fit(batch)
    >>> codes = quantizer.transform(X)
    >>> codes.shape, codes.dtype
    ((2000, 8), dtype('uint8'))
    >>> ids, distances = quantizer.encode(X).search(X[:3], k=10)
    >>> all(i in ids[i] for i in range(3))           # a row is among its own neighbours
    True
    """

    _kind, _word = "quantizer", "quantiser"

    def __init__(
        self,
        n_bytes: int = 8,
        *,
        effort: int = _EFFORT,
        method: str = "frosh",
        metric: str = "l2",
        sketch_rows: int | None = None,
        block_rows: int | None = None,
        sample_rows: int = 65536,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_bytes = n_bytes
        self.effort = effort
        self.method = method
        self.metric = metric
        self.sketch_rows = sketch_rows
        self.block_rows = block_rows
        self.sample_rows = sample_rows
        self.seed = seed
        self.n_jobs = n_jobs

    def _default_sketch_rows(self) -> int:
        self._checked_effort()
        return _native.quantizer_rows(check_length("n_bytes", self.n_bytes, "byte"))

    def _check_request(self, dim: int) -> None:
        assert self._fit.sketch is not None
        self._fit.sketch._native.check_quantizer(dim, int(self.n_bytes))

    def _fitted(self, sketch: Sketch) -> Any:
        return sketch._native.quantizer(check_length("n_bytes", self.n_bytes, "byte"), self.n_jobs)

    @classmethod
    def _from_sketch(cls, sketch: Sketch, n_bytes: int, effort: int) -> Quantizer:
        quantizer = cls(
            n_bytes,
            effort=effort,
            method=sketch.method,
            metric=sketch.metric,
            sketch_rows=sketch.sketch_rows,
            seed=sketch.seed,
            n_jobs=sketch._settings["n_jobs"],
        )
        quantizer._checked_effort()
        return quantizer._adopt(sketch)

    @classmethod
    def _of_model(cls, model: Any, n_jobs: int | None = None) -> Quantizer:
        quantizer = cls(model.bytes_per_row, metric=model.metric, seed=model.seed, n_jobs=n_jobs)
        quantizer._fit = _Fit()
        quantizer._fit.model = model
        return quantizer

    def _checked_effort(self) -> int:
        effort = self.effort
        if not isinstance(effort, (int, np.integer)) or isinstance(effort, bool):
            raise TypeError(f"effort is a number, not {type(effort).__name__}")
        if not 1 <= effort <= _MOST_EFFORT:
            raise ValueError(f"effort = {effort} is not possible: it is from 1 (fastest) to {_MOST_EFFORT} (most accurate)")
        return int(effort)

    def _encoder(self) -> Any:
        model, effort = self._model(), self._checked_effort()
        if effort == _EFFORT:
            return model
        # A copy of the model with this effort, kept for the next call.
        return self._cached(f"effort {effort}", lambda model: model.with_effort(effort))

    def transform(self, X: Any, *, column: str | None = None, progress: Progress = None) -> np.ndarray:
        """Codes, one row of `n_bytes` bytes for each row of `X`: the same bytes as those of `frosh encode`.

        The bytes are a cell and words of codebooks, so that the number of bits that differ means nothing. The code of a
        row does not depend on the other rows.
        """
        return self._transform(X, column, progress)

    def encode(self, X: Any, *, column: str | None = None, progress: Progress = None) -> Codes:
        """Codes that can be searched."""
        return self._encode(X, False, column, progress)

    @property
    def n_components_(self) -> int:
        """Number of directions that rows are projected on."""
        return self._model().directions
