"""Sign bits, with scikit-learn's conventions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._codes import Codes
from ._estimator import Estimator, _Fit, check_length
from ._progress import Progress
from ._sketch import Sketch


class Hasher(Estimator):
    """Learns codes of sign bits, and makes them.

    Follows scikit-learn's conventions: it works in pipelines, with `clone`, `get_params` and pickle, and needs
    scikit-learn for none of this.

    Parameters
    ----------
    n_bits : int
        Bits of a code: at most the dimension of the rows (any number for method "lsh").
    method : {"frosh", "frosh-sparse", "osh", "lsh"}
        The algorithm that learns.
    metric : {"l2", "cosine"}
        How rows are compared.
    rotation : str, optional
        How directions are rotated before their signs are taken: "none", "random", "isotropic", "itq", "refined" or
        "refined-random". By default the fit measures the best on a sample of the rows.
    sketch_rows : int, optional
        Rows of the sketch: even, at least `2 * n_bits`, which is the default.
    block_rows : int, optional
        Rows of a compressed block: a power of two.
    sample_rows : int
        Sampled rows, which the rotation and the distance estimator are fitted to.
    seed : int
        Seed of all randomness.
    n_jobs : int, optional
        Threads: every core by default and for -1. It does not change results.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of the rows.
    components_ : ndarray of shape (n_bits, n_features)
        The directions: bit k is 1 if `(x - mean_) @ components_[k]` is above zero. They are rotated.
    singular_values_ : ndarray of shape (n_bits,)
        Singular values of the sketch along the principal directions, before the rotation. Estimates from below.
    explained_variance_ratio_ : ndarray of shape (n_bits,)
        Share of the sampled rows' variance along each principal direction. Not for method "lsh".
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
    >>> hasher = frosh.Hasher(n_bits=16)
    >>> for batch in np.array_split(X, 7):           # any batch size gives the same bytes
    ...     hasher = hasher.partial_fit(batch)
    >>> codes = hasher.transform(X)
    >>> codes.shape, codes.dtype
    ((2000, 2), dtype('uint8'))
    >>> bits = frosh.unpack(codes, 16)
    >>> bool((bits == ((X - hasher.mean_) @ hasher.components_.T > 0)).mean() > 0.999)
    True
    """

    _kind = _word = "hasher"

    def __init__(
        self,
        n_bits: int = 64,
        *,
        method: str = "frosh",
        metric: str = "l2",
        rotation: str | None = None,
        sketch_rows: int | None = None,
        block_rows: int | None = None,
        sample_rows: int = 16384,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.method = method
        self.metric = metric
        self.rotation = rotation
        self.sketch_rows = sketch_rows
        self.block_rows = block_rows
        self.sample_rows = sample_rows
        self.seed = seed
        self.n_jobs = n_jobs

    def _default_sketch_rows(self) -> int | None:
        bits = check_length("n_bits", self.n_bits, "bit")
        return None if self.method == "lsh" else 2 * bits

    def _check_request(self, dim: int) -> None:
        assert self._fit.sketch is not None
        self._fit.sketch._native.check_hasher(dim, int(self.n_bits), self.rotation)

    def _fitted(self, sketch: Sketch) -> Any:
        return sketch._native.hasher(int(self.n_bits), self.rotation, self.n_jobs)

    @classmethod
    def _from_sketch(cls, sketch: Sketch, n_bits: int, rotation: str | None) -> Hasher:
        hasher = cls(
            n_bits,
            method=sketch.method,
            metric=sketch.metric,
            rotation=rotation,
            sketch_rows=sketch.sketch_rows,
            seed=sketch.seed,
            n_jobs=sketch._settings["n_jobs"],
        )
        return hasher._adopt(sketch)

    @classmethod
    def _of_model(cls, model: Any, n_jobs: int | None = None) -> Hasher:
        rotation = None if model.choice() is not None or model.method == "lsh" else model.rotation
        hasher = cls(
            model.bits, method=model.method, metric=model.metric, rotation=rotation, seed=model.seed, n_jobs=n_jobs
        )
        hasher._fit = _Fit()
        hasher._fit.model = model
        return hasher

    def transform(self, X: Any, *, column: str | None = None, progress: Progress = None) -> np.ndarray:
        """Packed codes, one row of `ceil(n_bits / 8)` bytes for each row of `X`.

        The layout is that of FAISS's binary indexes: bit k is bit `k % 8` of byte `k // 8` (`numpy.packbits` with
        `bitorder="little"`). The code of a row does not depend on the other rows.
        """
        return self._transform(X, column, progress)

    def encode(
        self, X: Any, *, factors: bool | None = None, column: str | None = None, progress: Progress = None
    ) -> Codes:
        """Codes that can be searched. `factors` keeps one byte more for each row, which the estimated ranking needs; by
        default it is kept if the model's ranking is that one."""
        if factors is None:
            factors = self._model().ranking == "estimated"
        return self._encode(X, factors, column, progress)

    @property
    def components_(self) -> np.ndarray:
        """The directions, one row for each bit."""
        return self._cached("components", lambda model: model.components())

    @property
    def rotation_(self) -> str:
        """The rotation of the model."""
        return self._model().rotation
