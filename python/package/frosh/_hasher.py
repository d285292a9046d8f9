"""The hash function, with scikit-learn's conventions."""

from __future__ import annotations

import inspect
import json
import os
import sys
import warnings
from typing import Any

import numpy as np

from . import _native
from ._codes import Codes
from ._inputs import feature_names, learning_values, pieces, row_count, whole
from ._progress import Progress, reporting
from ._sketch import Sketch


class NotFittedError(ValueError, AttributeError):
    """A hasher was used before it was fitted. If scikit-learn is loaded, its own class of this name is raised."""


class _Fit:
    """What a hasher has learned. One object, so that a hasher's own attributes do not change after a fit."""

    def __init__(self) -> None:
        self.sketch: Sketch | None = None
        self.model: Any = None
        self.names: np.ndarray | None = None
        self.cache: dict[str, Any] = {}

    def changed(self) -> None:
        self.model = None
        self.cache = {}


class Hasher:
    """Learns binary codes, and makes them.

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

    # Fitting

    def fit(self, X: Any, y: Any = None, *, column: str | None = None, progress: Progress = None) -> Hasher:
        """Learns from all rows of `X`, in one pass. What was learned before is forgotten.

        `X` is a matrix of NumPy, Arrow data, a data frame, a tensor on the CPU, or an iterator of such batches (also
        `frosh.read(path)`); `column` chooses a column of a table. `y` is ignored.
        """
        self._fit = self._begin()
        self._learn(X, column, progress)
        if self._fit.sketch is None or self._fit.sketch.rows == 0:
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
        self._model()
        return self

    def partial_fit(self, X: Any, y: Any = None, *, column: str | None = None, progress: Progress = None) -> Hasher:
        """Learns from further rows: any number of them. The hash function is fitted again when it is next used."""
        if not hasattr(self, "_fit"):
            self._fit = self._begin()
        self._learn(X, column, progress)
        return self

    def _begin(self) -> _Fit:
        fit = _Fit()
        if not isinstance(self.n_bits, (int, np.integer)) or isinstance(self.n_bits, bool):
            raise TypeError(f"n_bits is a number, not {type(self.n_bits).__name__}")
        if self.n_bits < 1:
            raise ValueError(f"n_bits = {self.n_bits} is not possible: a code has at least 1 bit")
        rows = 2 * int(self.n_bits) if self.sketch_rows is None and self.method != "lsh" else self.sketch_rows
        fit.sketch = Sketch(
            sketch_rows=rows,
            method=self.method,
            metric=self.metric,
            block_rows=self.block_rows,
            sample_rows=self.sample_rows,
            seed=self.seed,
            n_jobs=self.n_jobs,
        )
        return fit

    def _learn(self, X: Any, column: str | None, progress: Progress) -> None:
        fit = self._fit
        sketch = fit.sketch
        if sketch is None:
            raise ValueError("this hasher was read from a model file, which cannot learn: load the sketch instead")
        names = None if column is not None else feature_names(X)
        if sketch.rows == 0:
            fit.names = names
        else:
            self._check_names(names)
        fit.changed()
        with reporting(progress, row_count(X), "learning") as report:
            for first, piece in pieces(X, column, start=learning_values(sketch.method, sketch.metric, sketch.sketch_rows)):
                if sketch.rows == 0:
                    sketch._native.check_hasher(piece.shape[1], int(self.n_bits), self.rotation)
                else:
                    self._check_features(piece.shape[1])
                sketch._native.update(piece, first)
                report(piece.shape[0])

    def _model(self) -> Any:
        fit = getattr(self, "_fit", None)
        if fit is None or (fit.model is None and (fit.sketch is None or fit.sketch.rows == 0)):
            raise _not_fitted(self)
        if fit.model is None:
            fit.model = fit.sketch._native.hasher(int(self.n_bits), self.rotation, self.n_jobs)
        return fit.model

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
        hasher._fit = _Fit()
        hasher._fit.sketch = Sketch._of(sketch._native.finish(), hasher.n_jobs)
        hasher._model()
        return hasher

    # Encoding

    def transform(self, X: Any, *, column: str | None = None, progress: Progress = None) -> np.ndarray:
        """Packed codes, one row of `ceil(n_bits / 8)` bytes for each row of `X`.

        The layout is that of FAISS's binary indexes: bit k is bit `k % 8` of byte `k // 8` (`numpy.packbits` with
        `bitorder="little"`). The code of a row does not depend on the other rows.
        """
        model = self._model()
        self._check_names(None if column is not None else feature_names(X))
        width = -(-model.bits // 8)
        total = row_count(X)
        out = np.empty((0, width), np.uint8)
        done, parts = 0, []
        with reporting(progress, total, "encoding") as report:
            for first, piece in pieces(X, column):
                self._check_features(piece.shape[1])
                packed = model.encode(piece, first, False, self.n_jobs).packed()
                if total is None or done + len(packed) > total:
                    parts.append(packed)
                else:
                    if done == 0:
                        out = np.empty((total, width), np.uint8)
                    out[done : done + len(packed)] = packed
                    done += len(packed)
                report(len(packed))
        if done == 0 and not any(map(len, parts)):
            shape = getattr(X, "shape", (0,))
            raise ValueError(f"Found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
        return np.concatenate([out[:done], *parts]) if parts else out[:done]

    def fit_transform(self, X: Any, y: Any = None, *, column: str | None = None, progress: Progress = None) -> np.ndarray:
        """`fit(X)`, then `transform(X)`."""
        return self.fit(X, y, column=column, progress=progress).transform(X, column=column, progress=progress)

    def encode(
        self, X: Any, *, factors: bool | None = None, column: str | None = None, progress: Progress = None
    ) -> Codes:
        """Codes that can be searched. `factors` keeps one byte more for each row, which the estimated ranking needs; by
        default it is kept if the model's ranking is that one."""
        model = self._model()
        if factors is None:
            factors = model.ranking == "estimated"
        parts = []
        with reporting(progress, row_count(X), "encoding") as report:
            for first, piece in pieces(X, column):
                self._check_features(piece.shape[1])
                parts.append(model.encode(piece, first, factors, self.n_jobs))
                report(piece.shape[0])
        return Codes._of(_native.Codes.join(parts), model, self.n_jobs)

    def _queries(self, X: Any, column: str | None = None) -> Any:
        array = whole(X, column)
        self._check_features(array.shape[1])
        return self._model().queries(array, self.n_jobs)

    # Files

    def to_bytes(self) -> bytes:
        """The bytes of a model file, the same that `frosh train` or `frosh fit` writes."""
        return self._model().to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, *, n_jobs: int | None = None) -> Hasher:
        """Reads the bytes of a model file. The hasher can encode, and cannot learn."""
        return cls._of_model(_native.Model.from_bytes(bytes(data)), n_jobs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a model file, which the program reads. An existing file is replaced atomically."""
        self._model().save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None) -> Hasher:
        """Reads a model file. The hasher can encode, and cannot learn."""
        return cls._of_model(_native.Model.load(os.fspath(path)), n_jobs)

    @classmethod
    def _of_model(cls, model: Any, n_jobs: int | None = None) -> Hasher:
        rotation = None if model.choice() is not None or model.method == "lsh" else model.rotation
        hasher = cls(
            model.bits, method=model.method, metric=model.metric, rotation=rotation, seed=model.seed, n_jobs=n_jobs
        )
        hasher._fit = _Fit()
        hasher._fit.model = model
        return hasher

    # Fitted attributes

    def _cached(self, name: str, make: Any) -> Any:
        model = self._model()
        cache = self._fit.cache
        if name not in cache:
            cache[name] = make(model)
        return cache[name]

    @property
    def sketch_(self) -> Sketch:
        """The sketch that the hasher was fitted to. It merges with the sketches of other machines."""
        self._model()
        if self._fit.sketch is None:
            raise AttributeError("a hasher that was read from a model file has no sketch")
        return self._fit.sketch

    @property
    def mean_(self) -> np.ndarray:
        """Mean of the rows."""
        return self._cached("mean", lambda model: model.mean())

    @property
    def components_(self) -> np.ndarray:
        """The directions, one row for each bit."""
        return self._cached("components", lambda model: model.components())

    @property
    def singular_values_(self) -> np.ndarray:
        """Singular values of the sketch along the principal directions."""

        def make(model: Any) -> np.ndarray:
            values = np.zeros(model.bits)
            known = np.sqrt(self.sketch_.spectrum()[: model.bits])
            values[: len(known)] = known
            return values

        return self._cached("singular_values", make)

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the sampled rows' variance along each principal direction."""

        def make(model: Any) -> np.ndarray:
            shares = self.sketch_._native.captured_energy(model.bits)
            if shares is None:
                raise AttributeError("explained_variance_ratio_ needs a sample of rows, and a method other than lsh")
            return np.diff(shares, prepend=0.0)

        return self._cached("explained_variance_ratio", make)

    @property
    def n_samples_seen_(self) -> int:
        """Rows that were learned from."""
        fit = getattr(self, "_fit", None)
        if fit is not None and fit.sketch is not None and fit.sketch.rows:
            return fit.sketch.rows
        return self._model().rows

    @property
    def n_features_in_(self) -> int:
        """Values of a row."""
        fit = getattr(self, "_fit", None)
        dim = None
        if fit is not None:
            dim = fit.model.dim if fit.model is not None else fit.sketch.dim
        if dim is None:
            raise _not_fitted(self)
        return dim

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns."""
        fit = getattr(self, "_fit", None)
        if fit is None or fit.names is None:
            raise AttributeError("the first rows were no data frame with names of columns")
        return fit.names

    @property
    def choice_(self) -> dict[str, Any] | None:
        """What the fit measured on its sample; `None` if it measured nothing."""

        def make(model: Any) -> dict[str, Any] | None:
            text = model.choice()
            return None if text is None else json.loads(text)

        return self._cached("choice", make)

    @property
    def ranking_(self) -> str:
        """The ranking that searches use by default."""
        return self._model().ranking

    @property
    def oversample_(self) -> int:
        """Candidates to re-rank for each neighbour that is wanted."""
        return self._model().oversample

    @property
    def rotation_(self) -> str:
        """The rotation of the model."""
        return self._model().rotation

    @property
    def id_(self) -> str:
        """The model's id: a hash of its content."""
        return self._model().id

    # scikit-learn's conventions

    @classmethod
    def _parameter_names(cls) -> list[str]:
        names = inspect.signature(cls.__init__).parameters
        return sorted(name for name in names if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Hasher:
        """Sets parameters, for the next fit."""
        known = self._parameter_names()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {known!r}.")
            setattr(self, name, value)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the bytes of a code: hasher0, hasher1, ..."""
        width = -(-self._model().bits // 8)
        fit = self._fit
        if input_features is not None:
            given = np.asarray(input_features, dtype=object)
            if fit.names is not None and not np.array_equal(fit.names, given):
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(given) != self.n_features_in_:
                raise ValueError("input_features should have length equal to number of features")
        return np.asarray([f"hasher{i}" for i in range(width)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        fit = getattr(self, "_fit", None)
        return fit is not None and (fit.model is not None or (fit.sketch is not None and fit.sketch.rows > 0))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(),
        )

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        fit = state.pop("_fit", None)
        if fit is not None:
            model = None if fit.model is None else fit.model.to_bytes()
            state["_saved"] = {"sketch": fit.sketch, "model": model, "names": fit.names}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved", None)
        self.__dict__.update(state)
        if saved is not None:
            self._fit = _Fit()
            self._fit.sketch, self._fit.names = saved["sketch"], saved["names"]
            if saved["model"] is not None:
                self._fit.model = _native.Model.from_bytes(saved["model"])

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name in defaults
            if name != "self" and not _same(getattr(self, name, None), defaults[name].default)
        ]
        return f"Hasher({', '.join(changed)})"

    def _check_features(self, got: int) -> None:
        expected = self.n_features_in_
        if got != expected:
            raise ValueError(f"X has {got} features, but Hasher is expecting {expected} features as input.")

    def _check_names(self, names: np.ndarray | None) -> None:
        known = self._fit.names
        if names is None and known is None:
            return
        if known is None:
            warnings.warn("X has feature names, but Hasher was fitted without feature names", UserWarning, stacklevel=3)
        elif names is None:
            warnings.warn(
                "X does not have valid feature names, but Hasher was fitted with feature names", UserWarning, stacklevel=3
            )
        elif not np.array_equal(known, names):
            raise ValueError(_different_names(list(known), list(names)))


def _different_names(known: list[str], got: list[str]) -> str:
    text = "The feature names should match those that were passed during fit.\n"
    unseen, missing = sorted(set(got) - set(known)), sorted(set(known) - set(got))
    if unseen:
        text += "Feature names unseen at fit time:\n" + "".join(f"- {name}\n" for name in unseen[:5])
    if missing:
        text += "Feature names seen at fit time, yet now missing:\n" + "".join(f"- {name}\n" for name in missing[:5])
    if not unseen and not missing:
        text += "Feature names must be in the same order as they were in fit.\n"
    return text


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and a == b)


def _not_fitted(hasher: Hasher) -> Exception:
    kind: Any = NotFittedError
    if "sklearn" in sys.modules:
        from sklearn import exceptions

        kind = exceptions.NotFittedError
    return kind(
        f"This {type(hasher).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before using "
        "this estimator."
    )
