"""The examples in doc strings and in the README run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import frosh
from conftest import skip_aloud

MODULES = [name for _, name, _ in pkgutil.iter_modules(frosh.__path__, "frosh.") if name != "frosh._native"]


@pytest.mark.parametrize("name", ["frosh", *MODULES])
def test_doc_strings(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        skip_aloud(str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = doctest.testmod(module, extraglobs={"np": np, "frosh": frosh}, optionflags=doctest.ELLIPSIS)
    assert done.failed == 0


def test_every_public_name_has_a_doc_string():
    for name in frosh.__all__:
        thing = getattr(frosh, name)
        assert thing.__doc__, name
        for attribute, value in vars(thing).items() if isinstance(thing, type) else []:
            if not attribute.startswith("_") and (callable(value) or isinstance(value, (property, staticmethod, classmethod))):
                assert getattr(value, "__doc__", None), f"{name}.{attribute}"


def test_readme_examples(tmp_path, monkeypatch):
    """The blocks of Python in the README, one after the other in one namespace, in an empty folder."""
    readme = Path(__file__).resolve().parents[1] / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), flags=re.S)
    assert blocks, "the README has no example"
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(readme), "exec"), names)
