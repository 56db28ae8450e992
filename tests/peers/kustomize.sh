#!/usr/bin/env bash
# Renders deploy/kubernetes where there is no kubectl; the version is the one that kubectl 1.32 has inside.
set -euo pipefail

readonly prefix="${PREFIX:-/usr/local}"
readonly KUSTOMIZE=v5.5.0

if command -v kubectl >/dev/null || command -v kustomize >/dev/null; then
    echo "peers: a kustomize is there" >&2
    exit 0
fi
command -v go >/dev/null || { echo "peers: kustomize needs Go" >&2; exit 1; }
build=$(mktemp -d)
GOBIN="$build" go install "sigs.k8s.io/kustomize/kustomize/v5@$KUSTOMIZE"
install -D -m 755 "$build/kustomize" "$prefix/bin/kustomize"
rm -rf "$build"
