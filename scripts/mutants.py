#!/usr/bin/env python3
"""Would the tests notice? Puts small errors into the engine, one at a time, and runs the tests of `crates/frosh`.

    python3 scripts/mutants.py                  # all of them
    python3 scripts/mutants.py sketch reservoir # those in files whose path contains one of these words
    python3 scripts/mutants.py 12 80            # those of these numbers
    python3 scripts/mutants.py --list           # says which entries no longer fit the code

The list is scripts/mutants.txt; its head says how it is written. All errors are compiled into one copy of the
library, behind switches, so there is one build; the variable FROSH_MUTANT chooses which one is on. The copy lies in
target/mutants and shares the built dependencies. An error that no test notices has survived; the exit code is 1 if
one did that is not marked as equivalent, or if an entry of the list no longer fits the code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "target" / "mutants"
SOURCE = "crates/frosh/src"
# Quick ones first: the first that fails ends the run. What the engine has no part in is left out, and so are tests
# on real data, which take minutes.
STAGES = [
    ("definitions", []),
    ("rotations", []),
    ("codes", []),
    ("frosh", ["--skip", "index::", "--skip", "hamming::", "--skip", "evaluation::"]),
    ("decay", []),
    ("promises", []),
    ("files", []),
    ("accuracy", ["--skip", "find_as_much_as_exact_pca"]),
    ("refusals", []),
]
# Seconds that one stage may take; what loops for ever is noticed, too.
TIMEOUT = 240

SWITCH = """
/// Which error is on.
mod mutant {
    pub(crate) fn on(number: u32) -> bool {
        static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        *CHOSEN.get_or_init(|| {
            std::env::var("FROSH_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
        }) == number
    }
}
"""


@dataclass
class Mutant:
    number: int
    path: str
    before: str
    old: str
    new: str
    after: str
    # Why no test can notice it; empty for most.
    equivalent: str
    stale: bool = field(default=False)

    def __str__(self) -> str:
        return f"{self.number:3} {self.path}: {self.old}  =>  {self.new}"


def read_list() -> list[Mutant]:
    mutants: list[Mutant] = []
    path = ""
    for line in (ROOT / "scripts" / "mutants.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            path = line.strip("[] ")
            continue
        line, _, equivalent = line.partition(" ## ")
        found = re.fullmatch(r"(.*)«(.*) => (.*)»(.*)", line.strip().replace("\\n", "\n"), re.S)
        if not found:
            sys.exit(f"scripts/mutants.txt: no «old => new» in: {line}")
        before, old, new, after = found.groups()
        mutants.append(Mutant(len(mutants) + 1, path, before, old, new, after, equivalent.strip()))
    return mutants


def loosely(text: str) -> str:
    """A pattern for text in which any white space may stand for any other."""
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", text))


def switched(text: str, mutants: list[Mutant]) -> str:
    """The source with every mutant behind its switch. Several may share a place, but not overlap."""
    production = text.split("\n#[cfg(test)]\nmod tests")[0]
    places: dict[tuple[int, int], list[Mutant]] = {}
    for mutant in mutants:
        pattern = f"{loosely(mutant.before)}({loosely(mutant.old)}){loosely(mutant.after)}"
        found = list(re.finditer(pattern, production))
        if len(found) == 1:
            places.setdefault(found[0].span(1), []).append(mutant)
        else:
            mutant.stale = True
            print(f"STALE ({len(found)} places): {mutant}")
    last = len(text)
    for (start, end), here in sorted(places.items(), reverse=True):
        if end > last:
            sys.exit(f"mutants overlap: {here[0]}")
        last = start
        chosen = "".join(f"if crate::mutant::on({m.number}) {{ {m.new} }} else " for m in here)
        text = f"{text[:start]}({chosen}{{ {text[start:end]} }}){text[end:]}"
    return text


def build(mutants: list[Mutant]) -> dict[str, Path]:
    """Builds the tests of the copy; their programs by name."""
    for name in ["Cargo.toml", "Cargo.lock", "crates"]:
        source, to = ROOT / name, COPY / name
        if source.is_dir():
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(source, to)
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to)
    for path in sorted({m.path for m in mutants}):
        file = COPY / SOURCE / path
        file.write_text(switched(file.read_text(), [m for m in mutants if m.path == path]))
    with (COPY / SOURCE / "lib.rs").open("a") as lib:
        lib.write(SWITCH)
    # The dependencies are those of the release build; only the library itself is compiled faster and runs slower.
    command = ["cargo", "test", "--release", "-p", "frosh", "--lib", "--tests", "--no-run"]
    command += ["--message-format=json", "--target-dir", str(ROOT / "target")]
    command += ["--config", "profile.release.package.frosh.opt-level=2"]
    command += ["--config", "profile.release.package.frosh.debug=0"]
    done = subprocess.run(command, cwd=COPY, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        for message in messages:
            if message.get("message", {}).get("level") == "error":
                print(message["message"]["rendered"])
        sys.exit("the library with all its errors does not compile")
    return {
        m["target"]["name"]: Path(m["executable"])
        for m in messages
        if m.get("executable") and m.get("profile", {}).get("test")
    }


def run(programs: dict[str, Path], number: int) -> tuple[str, list[str]]:
    """The stage whose tests noticed, and which tests; nothing if none did."""
    for name, options in STAGES:
        try:
            done = subprocess.run(
                [str(programs[name]), *options],
                # Data for tests is looked for beside the real tree.
                cwd=COPY / "crates" / "frosh",
                env={**os.environ, "FROSH_MUTANT": str(number), "RUST_BACKTRACE": "0"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return name, ["(took too long)"]
        if done.returncode:
            return name, re.findall(r"^test (\S+) \.\.\. FAILED", done.stdout, re.M) or ["(crashed)"]
    return "", []


def main() -> None:
    if any(word in sys.argv for word in ("-h", "--help")):
        print(__doc__)
        return
    mutants = read_list()
    if "--list" in sys.argv:
        for path in sorted({m.path for m in mutants}):
            switched((ROOT / SOURCE / path).read_text(), [m for m in mutants if m.path == path])
        print("\n".join(map(str, mutants)))
        sys.exit(1 if any(m.stale for m in mutants) else 0)
    wanted = sys.argv[1:]
    numbers = {int(w) for w in wanted if w.isdigit()}
    words = [w for w in wanted if not w.isdigit()]
    chosen = [
        m
        for m in mutants
        if not wanted or m.number in numbers or any(word in m.path for word in words)
    ]
    programs = build(mutants)
    stage, failed = run(programs, 0)
    if stage:
        sys.exit(f"without any error, tests fail: {stage}: {', '.join(failed)}")
    survivors = []
    began = time.monotonic()
    for mutant in chosen:
        if mutant.stale:
            continue
        stage, failed = run(programs, mutant.number)
        if stage:
            more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
            print(f"noticed   {mutant}\n          by {stage}: {failed[0]}{more}", flush=True)
        elif mutant.equivalent:
            print(f"the same  {mutant}\n          {mutant.equivalent}", flush=True)
        else:
            print(f"SURVIVED  {mutant}", flush=True)
            survivors.append(mutant)
    stale = sum(m.stale for m in mutants)
    seconds = time.monotonic() - began
    print(f"{len(chosen)} mutants in {seconds:.0f} s: {len(survivors)} survived, {stale} no longer fit the code")
    for mutant in survivors:
        print(f"SURVIVED  {mutant}")
    sys.exit(1 if survivors or stale else 0)


if __name__ == "__main__":
    main()
