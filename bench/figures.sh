#!/usr/bin/env bash
# Prints the figures that bench/RESULTS.md records. Run it on a quiet machine.
#     bench/figures.sh cold    clean clone, empty target directory: build and demo together
#     bench/figures.sh demo    the demo alone from built binaries, three times
#     bench/figures.sh idle    memory and processor time of idle daemons, one line each
# PROFILE=release measures release binaries (demo, idle).
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PROFILE="${PROFILE:-dev}"
readonly IDLE_SECONDS=30
directory="${CARGO_TARGET_DIR:-target}/debug"
[[ "$PROFILE" == dev ]] || directory="${CARGO_TARGET_DIR:-target}/$PROFILE"
readonly LAB="$directory/isthmus-lab"

build() {
    cargo build --quiet --profile "$PROFILE" --workspace --bins
}

seconds() {
    local began ended
    began=$(date +%s.%N)
    "$@" >/dev/null 2>&1
    ended=$(date +%s.%N)
    awk -v a="$began" -v b="$ended" 'BEGIN { printf "%.1f", b - a }'
}

cold() {
    # Not local: the trap runs when the function is over.
    clone=$(mktemp -d)
    trap 'rm -rf "$clone"' EXIT
    git clone --quiet . "$clone"
    cd "$clone"
    export CARGO_TARGET_DIR="$clone/target"
    cargo fetch --quiet --locked
    echo "cold build and demo: $(seconds cargo demo) s"
}

demo() {
    build
    for _ in 1 2 3; do echo "demo from $PROFILE binaries: $(seconds "$LAB" demo) s"; done
}

# Fields 14 and 15 of stat(5), counted behind the name, which may hold anything.
ticks() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}

idle() {
    build
    "$LAB" demo --keep >/dev/null 2>&1
    trap '"$LAB" demo down >/dev/null 2>&1' EXIT
    sleep "$IDLE_SECONDS"
    local pid before after
    for pid in $(pgrep -x isthmusd); do
        before=$(ticks "$pid")
        sleep 10
        after=$(ticks "$pid")
        awk -v d="$((after - before))" -v hz="$(getconf CLK_TCK)" -v rss="$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")" \
            -v name="$(tr '\0' ' ' <"/proc/$pid/cmdline" | sed 's|.*/lab/||; s|/.*||')" -v profile="$PROFILE" \
            'BEGIN { printf "idle %s (%s): RSS %.1f MiB, processor %.2f %% over 10 s\n", name, profile, rss / 1024, 100 * d / hz / 10 }'
    done
}

case "${1:-}" in
    cold | demo | idle) "$1" ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
