#!/usr/bin/env bash
# Installs what `isthmus-bench` measures with and against: iperf3, ping, `wg`, wireguard-go, boringtun-cli and gotatun; BIRD, FRR and
# GoBGP. Root, Debian 12; needs cargo, and Go for wireguard-go. PREFIX (default /usr/local) gets the programs in bin/. Running it again is cheap.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly prefix="${PREFIX:-/usr/local}"
readonly GOTATUN=0.10.2

have() { command -v "$1" >/dev/null || [[ -x "$prefix/bin/$1" ]]; }

if ! have iperf3 || ! have ping; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends iperf3 iputils-ping >/dev/null
fi

# BIRD, FRR and GoBGP are among what the interop tests need.
tests/install-peers.sh
sh tests/peers/wireguard.sh

if ! have gotatun; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    CARGO_TARGET_DIR="$work/target" cargo install --locked --root "$work/cargo" --version "$GOTATUN" gotatun-cli
    install -D -m 0755 "$work/cargo/bin/gotatun" "$prefix/bin/gotatun"
fi
