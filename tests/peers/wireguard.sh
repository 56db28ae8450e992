#!/bin/sh
# Installs the WireGuard implementations that the interop tests talk to: wireguard-go, boringtun-cli and the `wg` command.
# PREFIX (default /usr/local) gets the programs in bin/. Needs root for `wg`, which comes from the distribution, unless it is there.
set -eu

prefix=${PREFIX:-/usr/local}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir -p "$prefix/bin"

have() { command -v "$1" >/dev/null 2>&1 || [ -x "$prefix/bin/$1" ]; }

if ! have wg; then
    apt-get update -q
    apt-get install -y -q --no-install-recommends wireguard-tools
fi

# The module is called "wireguard"; Debian's package is of 2020. That one serves where there is no Go.
if ! have wireguard-go; then
    if command -v go >/dev/null 2>&1; then
        GOBIN=$work/bin GOPATH=$work/go go install golang.zx2c4.com/wireguard@v0.0.0-20260522210424-ecfc5a8d5446
        install -m 0755 "$work/bin/wireguard" "$prefix/bin/wireguard-go"
    else
        apt-get install -y -q --no-install-recommends wireguard-go
    fi
fi

if ! have boringtun-cli; then
    CARGO_TARGET_DIR=$work/target cargo install --locked --root "$work/cargo" --version 0.7.1 boringtun-cli
    install -m 0755 "$work/cargo/bin/boringtun-cli" "$prefix/bin/boringtun-cli"
fi
