"""What the scripts beside this one share: an environment with pinned packages, and words on progress."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"


def say(text: str) -> None:
    """Progress, beside the results."""
    print(f"... {text}", file=sys.stderr, flush=True)


def run_inside_venv(pins: list[str]) -> None:
    """Return if already inside `.venv`; else make it, install `pins`, run the script there, and exit."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    python = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        say(f"making {VENV}")
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    # Only an install that came to its end is written down, so one that was cut short is mended.
    done = VENV / "installed"
    known = set(done.read_text().splitlines()) if done.exists() else set()
    if not known.issuperset(pins):
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *pins], check=True)
        done.write_text("\n".join(sorted(known.union(pins))) + "\n")
    sys.exit(subprocess.run([str(python), *sys.argv]).returncode)
