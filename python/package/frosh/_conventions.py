"""scikit-learn's conventions for estimators: parameters, names of columns, tags. Nothing here needs scikit-learn."""

from __future__ import annotations

import inspect
import sys
import warnings
from typing import Any, TypeVar

import numpy as np

_Self = TypeVar("_Self", bound="Conventions")

#: Calls between a warning of `check_names` and the user's line, which the warning shall name.
_CALLER = 5


class NotFittedError(ValueError, AttributeError):
    """A model was used before it was fitted. If scikit-learn is loaded, its own class of this name is raised."""


class Conventions:
    """What scikit-learn expects of an estimator, beside `fit` and `transform`."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        names = inspect.signature(cls.__init__).parameters
        return sorted(name for name in names if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self: _Self, **params: Any) -> _Self:
        """Sets parameters, for the next fit."""
        known = self._parameter_names()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {known!r}.")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(),
        )

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name in defaults
            if name != "self" and not _same(getattr(self, name, None), defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def check_features(estimator: object, got: int, expected: int) -> None:
    """Fails if rows have another number of values than those of the fit."""
    if got != expected:
        name = type(estimator).__name__
        raise ValueError(f"X has {got} features, but {name} is expecting {expected} features as input.")


def check_names(estimator: object, names: np.ndarray | None, known: np.ndarray | None) -> None:
    """Fails if columns have other names than those of the fit, and warns if only one of the two has names."""
    if names is None and known is None:
        return
    name = type(estimator).__name__
    if known is None:
        warnings.warn(f"X has feature names, but {name} was fitted without feature names", UserWarning, stacklevel=_CALLER)
    elif names is None:
        warnings.warn(
            f"X does not have valid feature names, but {name} was fitted with feature names", UserWarning, stacklevel=_CALLER
        )
    elif not np.array_equal(known, names):
        raise ValueError(_different_names(list(known), list(names)))


def not_fitted(estimator: object) -> Exception:
    """The exception for a model that was not fitted."""
    kind: Any = NotFittedError
    if "sklearn" in sys.modules:
        from sklearn import exceptions

        kind = exceptions.NotFittedError
    return kind(
        f"This {type(estimator).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before using "
        "this estimator."
    )


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
