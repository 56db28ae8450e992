#!/usr/bin/env bash
# Installs kubectl, which isthmus-ca and isthmusctl run: Debian's, where there is none. It is older than any cluster of today and does
# what the tests ask of it.
set -euo pipefail

if command -v kubectl >/dev/null; then
    echo "peers: kubectl is there" >&2
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends kubernetes-client >/dev/null
