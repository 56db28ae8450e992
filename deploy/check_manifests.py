"""Checks rendered Kubernetes manifests against what the project promises about them. Reads YAML on stdin.

With --attests: those of a daemon that attests pods, and so sees the host's processes and asks the kubelet.
"""

import sys

import yaml

ALLOWED_CAPABILITIES = {"NET_ADMIN", "NET_BIND_SERVICE"}
DAEMON_PATHS = {"/etc/isthmus", "/var/lib/isthmus", "/run/isthmus", "/dev/net/tun"}


ATTESTING_PATHS = DAEMON_PATHS | {"/var/run/secrets/isthmus"}
KUBELET_RULES = [{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]


def container_problems(container, attests):
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
    paths = ATTESTING_PATHS if attests else DAEMON_PATHS
    if missing := paths - {mount["mountPath"] for mount in container.get("volumeMounts", [])}:
        yield f"does not mount {sorted(missing)}"
    for kind, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        request = container.get(kind, {}).get("httpGet", {})
        if (request.get("host"), request.get("path")) != ("127.0.0.1", path):
            yield f"{kind} does not ask 127.0.0.1 for {path}"


def daemon_set_problems(manifest, attests):
    """Yields what is wrong with a DaemonSet."""
    pod = manifest["spec"]["template"]["spec"]
    update = manifest["spec"].get("updateStrategy", {}).get("rollingUpdate", {})
    if update.get("maxSurge") != 0 or update.get("maxUnavailable") != 1:
        yield "does not update one node at a time without surge"
    if not pod.get("hostNetwork", False):
        yield "is not on the host network"
    if pod.get("hostPID", False) and not attests or pod.get("hostIPC", False):
        yield "shares more with the host than it needs"
    if attests and not pod.get("hostPID", False):
        yield "can't see the processes that it attests"
    if pod.get("automountServiceAccountToken", True):
        yield "mounts an API token that nothing needs"
    devices = [volume["hostPath"] for volume in pod["volumes"] if "hostPath" in volume]
    if {"path": "/dev/net/tun", "type": "CharDevice"} not in devices:
        yield "does not bring /dev/net/tun as a character device"
    for container in pod["containers"] + pod.get("initContainers", []):
        for problem in container_problems(container, attests):
            yield f"container {container['name']} {problem}"


def access_problems(manifests):
    """Yields what is wrong with what the daemon may ask for."""
    rules = [rule for manifest in manifests if manifest["kind"].endswith("Role") for rule in manifest["rules"]]
    if rules != KUBELET_RULES:
        yield f"the daemon may {rules}, and needs {KUBELET_RULES}"
    for manifest in manifests:
        if manifest["kind"] == "ClusterRoleBinding":
            subjects = [(subject["kind"], subject.get("namespace"), subject["name"]) for subject in manifest["subjects"]]
            if subjects != [("ServiceAccount", "isthmus-system", "isthmusd")]:
                yield f"the role is bound to {subjects}"


def problems(manifests, attests):
    """Yields everything that is wrong."""
    kinds = {manifest["kind"] for manifest in manifests}
    wanted = {"Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"}
    wanted |= {"ClusterRole", "ClusterRoleBinding"} if attests else set()
    if kinds != wanted:
        yield f"there are {sorted(kinds)}, not {sorted(wanted)}"
    if attests:
        yield from access_problems(manifests)
    for manifest in manifests:
        if manifest["kind"] == "DaemonSet":
            for problem in daemon_set_problems(manifest, attests):
                yield f"DaemonSet {manifest['metadata']['name']}: {problem}"


def main():
    manifests = [manifest for manifest in yaml.safe_load_all(sys.stdin) if manifest]
    found = list(problems(manifests, attests=sys.argv[1:] == ["--attests"]))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
