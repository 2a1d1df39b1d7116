#!/bin/sh
# make_venv.sh FOLDER [PYTHON] [FLAGS OF venv ...]: make a virtual environment, or print clearly what is missing.
set -u
folder=$1
wanted=${2:-}
shift
[ $# -gt 0 ] && shift

fail() {
    for line in "$@"; do echo "fedxray: $line" >&2; done
    exit 1
}

# The version of a Python as "3.12", empty when it does not run.
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
fits() { case $1 in 3.11 | 3.12 | 3.13 | 3.14) return 0 ;; *) return 1 ;; esac; }
can_make_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

if [ -e "$folder/bin/python" ] || [ -L "$folder/bin/python" ]; then
    found=$(version "$folder/bin/python")
    fits "$found" || fail "$folder holds Python ${found:-that does not run}; 3.11 to 3.14 is needed." \
        "Remove it with 'make clean-all' and try again."
    "$folder/bin/python" -m pip --version >/dev/null 2>&1 || fail "$folder has no pip." \
        "Remove it with 'make clean-all' and try again."
    exit 0
fi

chosen= without_venv= seen=
consider() {
    [ -z "$chosen" ] || return 0
    found=$(version "$1")
    [ -z "$found" ] || seen="$seen $1=$found"
    fits "$found" || return 0
    if can_make_venv "$1"; then chosen=$1; else without_venv=${without_venv:-$1}; fi
}
if [ -n "$wanted" ]; then
    consider "$wanted"
    [ -n "$seen" ] || fail "PYTHON=$wanted does not run."
else
    for candidate in python3 python3.11 python3.12 python3.13 python3.14 python; do consider "$candidate"; done
fi

if [ -z "$chosen" ] && [ -n "$without_venv" ]; then
    found=$(version "$without_venv")
    fail "$without_venv is Python $found, but it cannot make environments: its module venv or ensurepip is missing." \
        "On Debian and Ubuntu: sudo apt install python$found-venv" \
        "Or name another Python: make demo PYTHON=/path/to/python3.12"
fi
if [ -z "$chosen" ]; then
    fail "Python 3.11, 3.12, 3.13 or 3.14 is needed; found:${seen:- none}." \
        "Debian, Ubuntu: sudo apt install python3 python3-venv    macOS: brew install python@3.12" \
        "Or name one: make demo PYTHON=/path/to/python3.12"
fi

echo "Making $folder with $chosen (Python $(version "$chosen"))."
trap 'rm -rf "$folder"; exit 1' HUP INT TERM
if ! "$chosen" -m venv "$@" "$folder"; then
    rm -rf "$folder"
    fail "'$chosen -m venv $folder' failed; its message is above."
fi
