#!/usr/bin/env bash
# Tests the Python package: makes a virtual environment, builds the wheel, and runs pytest with the examples of the
# documentation. With FROSH_ENGINES=1 also Spark (needs Java 17), Dask and Ray.
#
#   scripts/test_python.sh [arguments of pytest]
#
# Work goes to $FROSH_PYTHON_CACHE, by default ~/.cache/frosh.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "SKIPPED the Python package: there is no Python 3.10 or later with venv"
    exit 0
fi
cache=${FROSH_PYTHON_CACHE:-$HOME/.cache/frosh}
environment=$cache/python-test
wheels=$cache/python-wheels
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/python-target}
# The tests compare with the program, if it is built.
if [ -z "${FROSH_PROGRAM:-}" ] && [ -x target/release/frosh ]; then
    export FROSH_PROGRAM=$PWD/target/release/frosh
fi

"$python" -m venv "$environment"
pip=("$environment/bin/python" -m pip --disable-pip-version-check -q)
"${pip[@]}" install 'maturin>=1.9,<2'
rm -rf "$wheels"
"$environment/bin/maturin" build --release --manifest-path python/Cargo.toml --out "$wheels"
"${pip[@]}" install --force-reinstall --no-deps "$wheels"/frosh-*.whl
"${pip[@]}" install -r python/tests/requirements.txt
# Each of these may be missing on some platform: then its tests say so.
while read -r package; do
    "${pip[@]}" install $package || echo "SKIPPED the recipes of $package: it could not be installed"
done < python/tests/requirements-recipes.txt
if [ -n "${FROSH_ENGINES:-}" ]; then
    "${pip[@]}" install -r python/tests/requirements-engines.txt
fi
# From outside of the sources, so that the installed wheel is tested.
tests=$PWD/python/tests
cd "$environment"
exec "$environment/bin/python" -m pytest -q -c "$tests/../pyproject.toml" --rootdir "$tests/.." -p no:cacheprovider "$tests" "$@"
