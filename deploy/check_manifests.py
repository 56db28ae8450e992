"""Checks rendered Kubernetes manifests against what the project promises about them. Reads YAML on stdin."""

import sys

import yaml

ALLOWED_CAPABILITIES = {"NET_ADMIN", "NET_BIND_SERVICE"}
DAEMON_PATHS = {"/etc/isthmus", "/var/lib/isthmus", "/run/isthmus", "/dev/net/tun"}


def container_problems(container):
    """Yields what is wrong with one container."""
    context = container.get("securityContext", {})
    capabilities = context.get("capabilities", {})
    if context.get("privileged", False):
        yield "is privileged"
    if context.get("allowPrivilegeEscalation", True):
        yield "allows privilege escalation"
    if not context.get("readOnlyRootFilesystem", False):
        yield "can write to its root file system"
    if capabilities.get("drop") != ["ALL"]:
        yield "does not drop all capabilities"
    if extra := set(capabilities.get("add", [])) - ALLOWED_CAPABILITIES:
        yield f"adds the capabilities {sorted(extra)}"
    name, _, tag = container.get("image", "").rpartition(":")
    if not name or tag in ("", "latest"):
        yield f"runs an image without a version: {container.get('image')}"
    if missing := DAEMON_PATHS - {mount["mountPath"] for mount in container.get("volumeMounts", [])}:
        yield f"does not mount {sorted(missing)}"
    for kind, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        request = container.get(kind, {}).get("httpGet", {})
        if (request.get("host"), request.get("path")) != ("127.0.0.1", path):
            yield f"{kind} does not ask 127.0.0.1 for {path}"


def daemon_set_problems(manifest):
    """Yields what is wrong with a DaemonSet."""
    pod = manifest["spec"]["template"]["spec"]
    update = manifest["spec"].get("updateStrategy", {}).get("rollingUpdate", {})
    if update.get("maxSurge") != 0 or update.get("maxUnavailable") != 1:
        yield "does not update one node at a time without surge"
    if not pod.get("hostNetwork", False):
        yield "is not on the host network"
    if pod.get("hostPID", False) or pod.get("hostIPC", False):
        yield "shares more than the network with the host"
    if pod.get("automountServiceAccountToken", True):
        yield "mounts an API token that nothing needs"
    devices = [volume["hostPath"] for volume in pod["volumes"] if "hostPath" in volume]
    if {"path": "/dev/net/tun", "type": "CharDevice"} not in devices:
        yield "does not bring /dev/net/tun as a character device"
    for container in pod["containers"] + pod.get("initContainers", []):
        for problem in container_problems(container):
            yield f"container {container['name']} {problem}"


def problems(manifests):
    """Yields everything that is wrong."""
    kinds = {manifest["kind"] for manifest in manifests}
    for kind in ("Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"):
        if kind not in kinds:
            yield f"there is no {kind}"
    for manifest in manifests:
        if manifest["kind"] == "DaemonSet":
            for problem in daemon_set_problems(manifest):
                yield f"DaemonSet {manifest['metadata']['name']}: {problem}"


def main():
    found = list(problems([manifest for manifest in yaml.safe_load_all(sys.stdin) if manifest]))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
