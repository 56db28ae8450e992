//! A cluster through `kubectl`: it knows the user's kubeconfig, its credential plugins and proxies (docs/decisions/016).

use std::process::{Command, Stdio};

use isthmus_pki::doctor::ClusterBuilder;
use zeroize::Zeroizing;

use super::gather::progress;
use crate::failure::Failure;
use crate::moment::Moment;

/// Reads what the checks want from one context. What this user may not read is a finding; a cluster that can't be reached is a failure.
pub(super) fn cluster(context: &str, namespace: &str) -> Result<ClusterBuilder, Failure> {
    let in_mesh = ["--namespace", namespace];
    let questions: [(&str, &[&str]); 6] = [
        ("Secrets", &["get", "secret", "cacerts", "istio-ca-secret", "--ignore-not-found"]),
        ("meshConfig", &["get", "configmap", "istio", "--ignore-not-found"]),
        ("istiod and ztunnel", &["get", "deployments,daemonsets"]),
        (
            "roots of namespaces",
            &["get", "configmap", "--all-namespaces", "--field-selector=metadata.name=istio-ca-root-cert"],
        ),
        ("istio-csr", &["get", "deployments", "--namespace=cert-manager"]),
        ("clocks of nodes", &["get", "leases", "--namespace=kube-node-lease"]),
    ];
    let mut builder = ClusterBuilder::new(context);
    let mut failed = Vec::new();
    for (what, arguments) in questions {
        progress(&format!("{context}: reading {what}"));
        let global = arguments.iter().any(|a| a.starts_with("--namespace=") || *a == "--all-namespaces");
        let scope: &[&str] = if global { &[] } else { &in_mesh };
        match ask(context, scope, arguments)? {
            Ok(json) if json.trim_ascii().is_empty() => {}
            Ok(json) => builder.document(&format!("{context}: {what}"), &json, Moment::now().into()),
            Err(why) => failed.push((what, why)),
        }
    }
    if failed.len() == questions.len() {
        let (_, why) = failed.swap_remove(0);
        return Err(refused(context, &why));
    }
    for (what, why) in failed {
        builder.unreadable(&format!("{context}: {what}"), &why);
    }
    Ok(builder)
}

/// A context that is not there is the caller's mistake, a cluster that does not answer is not.
fn refused(context: &str, why: &str) -> Failure {
    let what = format!("context {context}: {why}");
    if why.contains("does not exist") {
        return Failure::usage(what).with_help("`kubectl config get-contexts` lists those that there are");
    }
    Failure::failed(what).with_help(format!("try `kubectl --context {context} version`, then this again"))
}

/// JSON, or what kubectl said.
fn ask(
    context: &str,
    scope: &[&str],
    arguments: &[&str],
) -> Result<Result<Zeroizing<Vec<u8>>, String>, Failure> {
    let mut command = Command::new("kubectl");
    command
        .args(["--context", context, "--request-timeout=20s"])
        .args(scope)
        .args(arguments)
        .args(["-o", "json"]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        Failure::failed(format!("kubectl can't be run: {error}"))
            .with_help("install it, or give this command files that `kubectl get -o json` wrote elsewhere")
    })?;
    let json = Zeroizing::new(output.stdout);
    if output.status.success() {
        return Ok(Ok(json));
    }
    Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_is_not_there_is_the_callers_mistake() {
        let code = |why: &str| match refused("nope", why) {
            Failure::Told { code, help, .. } => (code, help.unwrap_or_default()),
            other => panic!("{other:?}"),
        };
        let (mistake, help) = code("error: context \"nope\" does not exist");
        assert_eq!(mistake, 2);
        assert!(help.contains("get-contexts"), "{help}");
        let (down, help) = code("Unable to connect to the server: dial tcp: no route to host");
        assert_eq!(down, 1, "4 is for isthmusd");
        assert!(help.contains("kubectl --context nope"), "{help}");
    }
}
