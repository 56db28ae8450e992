#!/usr/bin/env bash
# Installs what the interop tests and deploy/check.sh need beside Rust, Go and a C compiler, on Debian 12, as root. Running it again
# is cheap.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PACKAGES=(bird2 ca-certificates faketime frr gobgpd iproute2 iputils-ping libfaketime nftables opensc openssl procps
    python3 python3-venv softhsm2 systemd tcpdump wireguard-tools)

missing() {
    local package
    for package in "${PACKAGES[@]}"; do
        # shellcheck disable=SC2016 # dpkg's own variable
        [[ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" == "install ok installed" ]] || echo "$package"
    done
}

# Packages start their services on installation; the tests start what they need, where they need it.
without_services() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [[ -e "$policy" ]]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    "$@" || status=$?
    rm -f "$policy"
    return "$status"
}

install_packages() {
    local wanted
    mapfile -t wanted < <(missing)
    if [[ ${#wanted[@]} -eq 0 ]]; then
        echo "peers: Debian packages are there" >&2
        return
    fi
    echo "peers: installing ${wanted[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    without_services apt-get install -qq -y --no-install-recommends "${wanted[@]}" >/dev/null
}

install_packages
for script in tests/peers/*.sh; do
    [[ -e "$script" ]] || continue
    echo "peers: $script" >&2
    bash "$script"
done
