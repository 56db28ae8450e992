//! The cluster through `kubectl`: it knows the user's kubeconfig, its credential plugins and proxies (docs/decisions/016).

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use isthmus_pki::{
    istio::{Files, manifest},
    kubernetes,
};
use zeroize::Zeroizing;

use crate::say::Lines;

/// One context and namespace.
pub(super) struct Kubectl<'a> {
    pub(super) context: &'a str,
    pub(super) namespace: &'a str,
}

/// The CA that the cluster has.
pub(super) struct InPlace {
    pub(super) files: Files,
    /// resourceVersion of the Secret `cacerts`; none: the CA is istiod's own, of `istio-ca-secret`.
    pub(super) version: Option<String>,
}

impl Kubectl<'_> {
    /// What is there: `cacerts`, else what istiod made for itself, else nothing.
    pub(super) fn in_place(&self) -> anyhow::Result<Option<InPlace>> {
        if let Some(secret) = self.secret("cacerts")? {
            let version = secret.resource_version().unwrap_or("").to_owned();
            return Ok(Some(InPlace { files: secret.data, version: Some(version) }));
        }
        let own = self.secret("istio-ca-secret")?;
        Ok(own.map(|secret| InPlace { files: secret.data, version: None }))
    }

    fn secret(&self, name: &str) -> anyhow::Result<Option<kubernetes::Object>> {
        let json = self.run(&["get", "secret", name, "--ignore-not-found", "-o", "json"], None)?;
        if json.trim_ascii().is_empty() {
            return Ok(None);
        }
        let objects = kubernetes::objects(&json).map_err(anyhow::Error::msg);
        Ok(objects.with_context(|| format!("{}: Secret {name}", self.context))?.pop())
    }

    /// Creates the Secret, or replaces just the version that was looked at. The key goes through a pipe, never through arguments,
    /// environment or a file; `replace` leaves no copy of it in an annotation, as `apply` does.
    pub(super) fn put(&self, files: &Files, found: Option<&InPlace>) -> anyhow::Result<()> {
        let version = found.and_then(|found| found.version.as_deref());
        let verb = if version.is_some() { "replace" } else { "create" };
        let json = manifest(files, self.namespace, version);
        self.run(&[verb, "--validate=false", "-f", "-"], Some(json.as_bytes())).map(drop)
    }

    fn run(&self, arguments: &[&str], input: Option<&[u8]>) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        let mut command = Command::new("kubectl");
        command.args(["--context", self.context, "--namespace", self.namespace]).args(arguments);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.context("kubectl can't be run: install it, or use --manifest")?;
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
            // A kubectl that ended early says why itself.
            let _ = pipe.write_all(input);
        }
        let output = child.wait_with_output().context("kubectl")?;
        let answer = Zeroizing::new(output.stdout);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = Lines(said.trim().lines().map(str::to_owned).collect());
            let failed = format!("context {}: kubectl {} failed", self.context, arguments[0]);
            return Err(anyhow::Error::new(said).context(failed));
        }
        Ok(answer)
    }
}
