#!/usr/bin/env bash
# Installs the programs that judge our certificates beside OpenSSL and Go: GnuTLS's certtool, and pkilint in a virtual environment.
set -euo pipefail

readonly prefix="${PREFIX:-/usr/local}"
readonly PKILINT=0.13.3
readonly venv="$prefix/lib/isthmus-pkilint"

if ! command -v certtool >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends gnutls-bin >/dev/null
fi
if [[ ! -x "$venv/bin/lint_crl" ]]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "pkilint==$PKILINT"
fi
for program in lint_pkix_cert lint_pkix_signer_signee_cert_chain lint_crl; do
    ln -sfn "$venv/bin/$program" "$prefix/bin/$program"
done
