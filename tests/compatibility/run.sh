#!/usr/bin/env bash
# Tests the rooms that use other packages most, and one whole study, with other versions of these
# packages: the lowest that pyproject.toml allows (constraints-lowest.txt), or the highest that pip
# finds today; torch as in constraints.txt.
#   VERSIONS   lowest or highest
#   PYTHON     such as python3.12; python3 without it
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${VERSIONS:?must be lowest or highest}"
python="${PYTHON:-python3}"
version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
folder=".cache/compatibility/$VERSIONS-$version"
constraints="constraints-lowest.txt"
if [ "$VERSIONS" = highest ]; then
    mkdir -p "$folder"
    constraints="$folder/torch.txt"
    grep '^torch==' constraints.txt >"$constraints"
fi
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
install=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check)
"${install[@]}" -c "$constraints" -e '.[dev]'
"${install[@]}" --no-deps --require-hashes -r requirements-embedded.txt
export OMP_NUM_THREADS=1
# transformers below 5.23 scripts parts of DeBERTa, which the tests' stand-in for a GPU cannot run.
export PYTORCH_JIT=0
# An old package may use what a new one of those that it needs calls deprecated.
options=(-q -p no:cacheprovider -W default::DeprecationWarning)
"$folder/bin/python" -m pytest "${options[@]}" -m 'not integration and not server' \
    tests/{spec,storage,models,text,heads,probes,ranking,tasks,reporting}
# One study by `papa run`: Prefect, Ray and MLflow start, work and end.
"$folder/bin/python" -m pytest "${options[@]}" tests/flows/test_run.py::test_results_hold_every_cell
