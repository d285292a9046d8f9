"""What `Hasher` and `Quantizer` share: learning from rows, encoding them, files, and fitted attributes."""

from __future__ import annotations

import json
import os
from typing import Any, ClassVar, TypeVar

import numpy as np

from . import _native
from ._codes import Codes
from ._conventions import Conventions, check_features, check_names, not_fitted
from ._inputs import START_VALUES, feature_names, learning_values, pieces, row_count
from ._progress import Progress, reporting
from ._sketch import Sketch

_Self = TypeVar("_Self", bound="Estimator")


class _Fit:
    """What an estimator has learned. One object, so that an estimator's own attributes do not change after a fit."""

    def __init__(self) -> None:
        self.sketch: Sketch | None = None
        self.model: Any = None
        self.names: np.ndarray | None = None
        self.cache: dict[str, Any] = {}

    def changed(self) -> None:
        self.model = None
        self.cache = {}


class Estimator(Conventions):
    """The base of `Hasher` and `Quantizer`."""

    #: The kind of model files.
    _kind: ClassVar[str]
    #: The kind in messages.
    _word: ClassVar[str]

    metric: str
    method: str
    seed: int
    sketch_rows: int | None
    block_rows: int | None
    sample_rows: int
    n_jobs: int | None
    _fit: _Fit

    # What the kinds differ in

    def _default_sketch_rows(self) -> int | None:
        """Rows of the sketch, if the parameter is not given. Checks the length of codes."""
        raise NotImplementedError

    def _check_request(self, dim: int) -> None:
        """Fails, before the first row, if no model can be fitted to rows of `dim` values."""
        raise NotImplementedError

    def _fitted(self, sketch: Sketch) -> Any:
        """Fits a model to a sketch."""
        raise NotImplementedError

    @classmethod
    def _of_model(cls: type[_Self], model: Any, n_jobs: int | None = None) -> _Self:
        """The estimator of a model that was read from a file."""
        raise NotImplementedError

    def _encoder(self) -> Any:
        """The model that encodes rows."""
        return self._model()

    # Fitting

    def fit(self: _Self, X: Any, y: Any = None, *, column: str | None = None, progress: Progress = None) -> _Self:
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

    def partial_fit(self: _Self, X: Any, y: Any = None, *, column: str | None = None, progress: Progress = None) -> _Self:
        """Learns from further rows: any number of them. The model is fitted again when it is next used."""
        if not hasattr(self, "_fit"):
            self._fit = self._begin()
        self._learn(X, column, progress)
        return self

    def _begin(self) -> _Fit:
        fit = _Fit()
        default = self._default_sketch_rows()
        fit.sketch = Sketch(
            sketch_rows=default if self.sketch_rows is None else self.sketch_rows,
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
            raise ValueError(f"this {self._word} was read from a model file, which cannot learn: load the sketch instead")
        names = None if column is not None else feature_names(X)
        if sketch.rows == 0:
            fit.names = names
        else:
            self._check_names(names)
        fit.changed()
        with reporting(progress, row_count(X), "learning") as report:
            for first, piece in pieces(X, column, start=learning_values(sketch.method, sketch.metric, sketch.sketch_rows)):
                if sketch.rows == 0:
                    self._check_request(piece.shape[1])
                else:
                    self._check_features(piece.shape[1])
                sketch._native.update(piece, first)
                report(piece.shape[0])

    def _model(self) -> Any:
        fit = getattr(self, "_fit", None)
        if fit is None or (fit.model is None and (fit.sketch is None or fit.sketch.rows == 0)):
            raise not_fitted(self)
        if fit.model is None:
            fit.model = self._fitted(fit.sketch)
        return fit.model

    def _adopt(self: _Self, sketch: Sketch) -> _Self:
        """Fits the estimator to a copy of a sketch."""
        self._fit = _Fit()
        self._fit.sketch = Sketch._of(sketch._native.finish(), self.n_jobs)
        self._model()
        return self

    # Encoding

    def transform(self, X: Any, *, column: str | None = None, progress: Progress = None) -> np.ndarray:
        """Codes, one row of bytes for each row of `X`."""
        raise NotImplementedError

    def _transform(self, X: Any, column: str | None, progress: Progress) -> np.ndarray:
        model = self._encoder()
        self._check_names(None if column is not None else feature_names(X))
        width = model.bytes_per_row
        total = row_count(X)
        out = np.empty((0, width), np.uint8)
        done, parts = 0, []
        with reporting(progress, total, "encoding") as report:
            for first, piece in pieces(X, column, start=encoding_values(model)):
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

    def _encode(self, X: Any, factors: bool, column: str | None, progress: Progress) -> Codes:
        model = self._encoder()
        parts = []
        with reporting(progress, row_count(X), "encoding") as report:
            for first, piece in pieces(X, column, start=encoding_values(model)):
                self._check_features(piece.shape[1])
                parts.append(model.encode(piece, first, factors, self.n_jobs))
                report(piece.shape[0])
        return Codes._of(_native.Codes.join(parts), self._model(), self.n_jobs)

    # Files

    def to_bytes(self) -> bytes:
        """The bytes of a model file, the same that `frosh train` or `frosh fit` writes."""
        return self._model().to_bytes()

    @classmethod
    def from_bytes(cls: type[_Self], data: bytes, *, n_jobs: int | None = None) -> _Self:
        """Reads the bytes of a model file. The model can encode, and cannot learn."""
        return cls._of_model(cls._checked(_native.Model.from_bytes(bytes(data)), ""), n_jobs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a model file, which the program reads. An existing file is replaced atomically."""
        self._model().save(os.fspath(path))

    @classmethod
    def load(cls: type[_Self], path: str | os.PathLike[str], *, n_jobs: int | None = None) -> _Self:
        """Reads a model file. The model can encode, and cannot learn. `frosh.load` reads models of either kind."""
        name = os.fspath(path)
        return cls._of_model(cls._checked(_native.Model.load(name), f"{name}: "), n_jobs)

    @classmethod
    def _checked(cls, model: Any, where: str) -> Any:
        if model.kind != cls._kind:
            word, other = ("hasher", "Hasher") if model.kind == "hasher" else ("quantiser", "Quantizer")
            raise ValueError(f"{where}this is the model of a {word}, not of a {cls._word}: use frosh.{other} or frosh.load")
        return model

    # Fitted attributes

    def _cached(self, name: str, make: Any) -> Any:
        model = self._model()
        cache = self._fit.cache
        if name not in cache:
            cache[name] = make(model)
        return cache[name]

    @property
    def sketch_(self) -> Sketch:
        """The sketch that the model was fitted to. It merges with the sketches of other machines."""
        self._model()
        if self._fit.sketch is None:
            raise AttributeError(f"a {self._word} that was read from a model file has no sketch")
        return self._fit.sketch

    @property
    def mean_(self) -> np.ndarray:
        """Mean of the rows."""
        return self._cached("mean", lambda model: model.mean())

    @property
    def singular_values_(self) -> np.ndarray:
        """Singular values of the sketch along the principal directions."""

        def make(model: Any) -> np.ndarray:
            values = np.zeros(model.directions)
            known = np.sqrt(self.sketch_.spectrum()[: model.directions])
            values[: len(known)] = known
            return values

        return self._cached("singular_values", make)

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the sampled rows' variance along each principal direction."""

        def make(model: Any) -> np.ndarray:
            shares = self.sketch_._native.captured_energy(model.directions)
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
            raise not_fitted(self)
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
    def id_(self) -> str:
        """The model's id: a hash of its content."""
        return self._model().id

    # scikit-learn's conventions that depend on the fit

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the bytes of a code: the name of the class in lower case, and a number."""
        width = self._model().bytes_per_row
        fit = self._fit
        if input_features is not None:
            given = np.asarray(input_features, dtype=object)
            if fit.names is not None and not np.array_equal(fit.names, given):
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(given) != self.n_features_in_:
                raise ValueError("input_features should have length equal to number of features")
        name = type(self).__name__.lower()
        return np.asarray([f"{name}{i}" for i in range(width)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        fit = getattr(self, "_fit", None)
        return fit is not None and (fit.model is not None or (fit.sketch is not None and fit.sketch.rows > 0))

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

    def _check_features(self, got: int) -> None:
        check_features(self, got, self.n_features_in_)

    def _check_names(self, names: np.ndarray | None) -> None:
        check_names(self, names, self._fit.names)


def encoding_values(model: Any) -> int:
    """Values of the first piece to encode. A quantiser searches for the best code of each row, which takes much longer than
    signs. So its first piece has few rows; later ones grow if there is time, as `pieces` measures it."""
    return START_VALUES if model.kind == "hasher" else 256 * model.dim


def check_length(name: str, value: Any, unit: str) -> int:
    """The length of codes, which must be a whole number from 1 on."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name} is a number, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} = {value} is not possible: a code has at least 1 {unit}")
    return int(value)
