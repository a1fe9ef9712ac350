# Sourced by the scripts of bin/: `ensure_venv embedded,dev` makes .venv with these extras of pyproject.toml.
# Installs again only when pyproject.toml changed, an extra is new, or the checkout was moved.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
py="$root/.venv/bin/python"

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die "Python 3.11 or newer is needed (found: $(python3 --version 2>&1 || true)): install it, or set PYTHON=/path/to/python"
}

# One line per installed extra; the first line says for what they were installed.
venv_mark() {
  printf '%s %s\n' "$root" "$(cksum <"$root/pyproject.toml" | tr ' ' '-')"
}

venv_has() {
  local stamp="$root/.venv/.extras" extra
  [ -x "$py" ] && [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$(venv_mark)" ] || return 1
  for extra in ${1//,/ }; do
    grep -qx "$extra" "$stamp" || return 1
  done
}

install_venv() {
  local extras=$1 python stamp="$root/.venv/.extras"
  python=$(find_python) || exit 1
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    die "$python has no venv module: install it (Debian: apt-get install python3-venv)"
  if [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$(venv_mark)" ]; then
    extras="$(tail -n +2 "$stamp" | tr '\n' ',')$extras"
  elif [ ! -x "$py" ] || [ "$(cut -d' ' -f1 "$stamp" 2>/dev/null | head -n 1)" != "$root" ]; then
    "$python" -m venv --clear "$root/.venv" || die "cannot make $root/.venv"
  fi
  rm -f "$stamp"
  echo "installing into .venv (first time, or pyproject.toml changed) ..." >&2
  "$py" -m pip install -qq --disable-pip-version-check --no-input -e "$root[$extras]" ||
    die "pip install failed: see above; is a package index reachable?"
  { venv_mark; printf '%s\n' "${extras//,/$'\n'}" | sort -u; } >"$stamp"
}

ensure_venv() {
  venv_has "$1" && return
  if command -v flock >/dev/null; then
    # Two scripts at once: the second waits and then finds everything there.
    ( flock 9; venv_has "$1" || install_venv "$1" ) 9>"$root/.venv.lock" || exit 1
  else
    ( install_venv "$1" ) || exit 1
  fi
}
