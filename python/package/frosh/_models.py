"""Models of either kind, as files and indexes hold them."""

from __future__ import annotations

import os
from typing import Any, Union

from . import _native
from ._hasher import Hasher
from ._quantizer import Quantizer

#: What encodes rows.
Model = Union[Hasher, Quantizer]


def load(path: str | os.PathLike[str], *, n_jobs: int | None = None) -> Model:
    """Reads a model file of either kind: a `Hasher` or a `Quantizer`, which can encode and cannot learn.

    >>> import os, tempfile
    >>> X = np.random.default_rng(0).standard_normal((2000, 32), dtype=np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.frosh")
    ...     frosh.Quantizer(n_bytes=4).fit(X).save(path)
    ...     frosh.load(path)
    Quantizer(n_bytes=4)
    """
    return of_model(_native.Model.load(os.fspath(path)), n_jobs)


def of_model(model: Any, n_jobs: int | None = None) -> Model:
    """The estimator of a model that was read."""
    if model.kind == "quantizer":
        return Quantizer._of_model(model, n_jobs)
    return Hasher._of_model(model, n_jobs)
