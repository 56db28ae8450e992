#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (default 15) each, from the seeds in tests/fuzz/seeds and what earlier runs found. An input that
# breaks something is left in tests/fuzz/artifacts; the binary named in the message reproduces it.
# Needs a nightly toolchain and a C++ compiler; without them it is skipped with a line that says so, and with ISTHMUS_PEERS=required
# it is an error.
set -euo pipefail
cd "$(dirname "$0")"

readonly SECONDS_EACH="${1:-15}"
# The nightly of the day may break something; FUZZ_TOOLCHAIN=nightly-2026-05-15 pins one.
readonly TOOLCHAIN="${FUZZ_TOOLCHAIN:-nightly}"
readonly TARGET_DIR="${CARGO_TARGET_DIR:+$CARGO_TARGET_DIR/fuzz}"
# What `cargo fuzz` passes: coverage for libFuzzer to steer by, and AddressSanitizer. Warnings are for the compiler of the project.
readonly FLAGS="-Awarnings -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Ccodegen-units=1 --cfg fuzzing"

say() { printf 'fuzz: %s\n' "$*" >&2; }

skip() {
    if [[ "${ISTHMUS_PEERS:-}" == required ]]; then
        say "FAILED: $1 (ISTHMUS_PEERS=required)"
        exit 1
    fi
    say "skipped: $1"
    exit 0
}

[[ "$SECONDS_EACH" =~ ^[1-9][0-9]*$ ]] || { say "usage: run.sh [SECONDS], a whole number from 1"; exit 2; }
# `rustup run`, unlike `cargo +`, never downloads a toolchain on its own.
rustup run "$TOOLCHAIN" cargo --version >/dev/null 2>&1 ||
    skip "there is no $TOOLCHAIN toolchain; rustup toolchain install $TOOLCHAIN --profile minimal"
command -v c++ >/dev/null || skip "there is no C++ compiler, and libFuzzer is C++"

host=$(rustup run "$TOOLCHAIN" rustc -vV | sed -n 's/^host: //p')
binaries="${TARGET_DIR:-target}/$host/release"
# --target keeps the flags away from build scripts and macros, which run on this machine.
RUSTFLAGS="$FLAGS" CARGO_TARGET_DIR="${TARGET_DIR:-target}" \
    rustup run "$TOOLCHAIN" cargo build --quiet --release --bins --target "$host"

failed=()
for source in targets/*.rs; do
    target=$(basename "$source" .rs)
    mkdir -p "corpus/$target" "artifacts/$target"
    log=$(mktemp)
    # Leak detection needs ptrace, which containers often deny; Rust's leaks are no faults of memory.
    if ASAN_OPTIONS=detect_leaks=0 "$binaries/$target" -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=128 -max_len=8192 \
        -detect_leaks=0 -print_final_stats=1 -artifact_prefix="artifacts/$target/" "corpus/$target" "seeds/$target" >"$log" 2>&1; then
        say "$target: ok, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $SECONDS_EACH s"
    else
        grep -m 2 -A 4 -E 'panicked at|ERROR: ' "$log" >&2 || tail -n 20 "$log" >&2
        input=$(sed -n 's/.*Test unit written to //p' "$log")
        say "$target: FAILED; again with: (cd tests/fuzz && RUST_BACKTRACE=1 $binaries/$target $input)"
        failed+=("$target")
    fi
    rm -f "$log"
done
[[ ${#failed[@]} -eq 0 ]] || { say "FAILED: ${failed[*]}"; exit 1; }
