//! The Secret `cacerts` as a manifest.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Serialize;
use zeroize::{Zeroize as _, Zeroizing};

use super::Files;

/// A manifest holds a key: what was made on the way is zeroized.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Secret<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    r#type: &'static str,
    data: std::collections::BTreeMap<&'a str, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: &'static str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
}

impl<'a> Secret<'a> {
    fn new(files: &'a Files, namespace: &'a str, resource_version: Option<&'a str>) -> Self {
        let data = files.iter().map(|(name, bytes)| (name.as_str(), BASE64_STANDARD.encode(bytes))).collect();
        let metadata = Metadata { name: "cacerts", namespace, resource_version };
        Self { api_version: "v1", kind: "Secret", metadata, r#type: "Opaque", data }
    }
}

impl Drop for Secret<'_> {
    fn drop(&mut self) {
        self.data.values_mut().for_each(String::zeroize);
    }
}

/// JSON for `kubectl`. With a resource version it replaces just that version of the Secret, or nothing.
pub fn manifest(files: &Files, namespace: &str, resource_version: Option<&str>) -> Zeroizing<String> {
    let secret = Secret::new(files, namespace, resource_version);
    // Room for all of it at once: a growing buffer leaves copies of a secret behind.
    let room = secret.data.values().map(|text| text.len() + 64).sum::<usize>() + 1024;
    let mut json = Vec::with_capacity(room);
    serde_json::to_writer(&mut json, &secret).expect("strings only");
    Zeroizing::new(String::from_utf8(json).expect("JSON is UTF-8"))
}

/// YAML for people and repositories of sealed secrets.
pub fn manifest_yaml(files: &Files, namespace: &str) -> Zeroizing<String> {
    Zeroizing::new(serde_norway::to_string(&Secret::new(files, namespace, None)).expect("strings only"))
}
