"""The type annotations hold: mypy finds no error in the package, nor in a program that uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import frosh
from conftest import need

PROGRAM = """
import numpy as np
import frosh

X = np.zeros((10, 4), dtype=np.float32)
quantizer: frosh.Quantizer = frosh.Quantizer(n_bytes=4, effort=2).fit(X).partial_fit(X)
fitted: frosh.Quantizer = frosh.Sketch().update(X).quantizer(8)
either = frosh.load("model.frosh")
searched: frosh.Index = frosh.Index(either)
found = quantizer.encode(X).search(X, k=3, filter=[1])
length: int = fitted.n_components_
hasher: frosh.Hasher = frosh.Hasher(n_bits=2, metric="l2").fit(X).partial_fit(X, progress=print)
codes: np.ndarray = hasher.transform(X)
ids, distances = hasher.encode(X).search(X, k=3)
merged: frosh.Sketch = frosh.Sketch(worker=1).update(X).merge(frosh.Sketch(worker=2))
rows: int = merged.rows
index: frosh.Index = frosh.Index.open("folder", "a")
index.add(X, ids=["a", "b"])
first: float = frosh.evaluate(hasher, X)["rankings"]["hamming"]["map"]
wrong: str = merged.rows
"""


def test_annotations(tmp_path):
    need("mypy")
    package = Path(frosh.__file__).parent
    assert (package / "py.typed").is_file() and (package / "_native.pyi").is_file()
    (tmp_path / "program.py").write_text(PROGRAM)
    optional = ["frosh.spark", "frosh.dask", "frosh.ray"]
    config = "[mypy]\n" + "".join(f"[mypy-{name}]\nignore_errors = True\n" for name in optional)
    (tmp_path / "mypy.ini").write_text(config)

    def mypy(*args) -> list[str]:
        command = [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "c"), *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "MYPYPATH": ""})
        return [line for line in done.stdout.splitlines() if "error:" in line]

    assert mypy("-p", "frosh", "--ignore-missing-imports") == []
    # Only the wrong line is wrong.
    errors = mypy("program.py")
    assert len(errors) == 1 and "int" in errors[0] and "str" in errors[0], errors
