//! Kubernetes objects as `kubectl get -o json` and manifests have them: the few fields that are looked at, without a client.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize as _, de::Error as _};
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use zeroize::{Zeroize as _, Zeroizing};

/// Longest document that is looked at, in bytes.
pub const MAX_LEN: usize = 64 << 20;
/// Longest document in YAML, whose aliases make much of little.
const MAX_YAML_LEN: usize = 1 << 20;

/// One object.
pub struct Object {
    /// Such as "Secret".
    pub kind: String,
    /// Empty if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Seconds since the Unix epoch at which it was changed last, or made, if it says so.
    pub changed_at: Option<i64>,
    /// `data` and `stringData` of Secrets and ConfigMaps, decoded; zeroized on drop.
    pub data: BTreeMap<String, Zeroizing<Vec<u8>>>,
    /// Keys of `data` that are not base64.
    pub undecodable: Vec<String>,
    /// The whole of it; of a Secret only the metadata.
    pub value: Value,
}

impl Object {
    /// "Secret istio-system/cacerts".
    pub fn place(&self) -> String {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.kind, self.namespace, self.name)
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> Option<&str> {
        self.value.pointer("/metadata/resourceVersion")?.as_str()
    }

    fn new(mut value: Value) -> Option<Self> {
        let text = |value: &Value, pointer: &str| {
            value.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned()
        };
        let kind = text(&value, "/kind");
        if kind.is_empty() {
            return None;
        }
        let (mut data, mut undecodable) = (BTreeMap::new(), Vec::new());
        let secret = kind == "Secret";
        for field in ["data", "binaryData", "stringData"] {
            let Some(Value::Object(mut map)) = value.as_object_mut().and_then(|o| o.remove(field)) else {
                continue;
            };
            for (key, value) in &mut map {
                let Value::String(text) = value else { continue };
                match decode(text, field == "binaryData" || field == "data" && secret) {
                    Some(bytes) => drop(data.insert(key.clone(), bytes)),
                    None => undecodable.push(key.clone()),
                }
                text.zeroize();
            }
        }
        if secret {
            scrub(&mut value);
        }
        let (namespace, name) = (text(&value, "/metadata/namespace"), text(&value, "/metadata/name"));
        Some(Self { changed_at: changed_at(&value), kind, namespace, name, data, undecodable, value })
    }
}

/// What a Secret was applied from is kept in an annotation, with all that is secret.
fn scrub(secret: &mut Value) {
    let Some(Value::Object(annotations)) = secret.pointer_mut("/metadata/annotations") else { return };
    for value in annotations.values_mut() {
        if let Value::String(text) = value {
            text.zeroize();
        }
    }
}

fn decode(text: &str, base64: bool) -> Option<Zeroizing<Vec<u8>>> {
    if !base64 {
        return Some(Zeroizing::new(text.as_bytes().to_vec()));
    }
    let plain: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
    BASE64_STANDARD.decode(plain.as_bytes()).ok().map(Zeroizing::new)
}

fn changed_at(object: &Value) -> Option<i64> {
    let managed = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let times = managed.into_iter().flatten().filter_map(|field| field.get("time"));
    times.chain(object.pointer("/metadata/creationTimestamp")).filter_map(timestamp).max()
}

/// Seconds since the Unix epoch of an RFC 3339 text.
pub fn timestamp(value: &Value) -> Option<i64> {
    OffsetDateTime::parse(value.as_str()?, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}

/// True if it may be an object: JSON, or YAML that says `kind:`.
pub fn seems(bytes: &[u8]) -> bool {
    let json = bytes.trim_ascii_start().first() == Some(&b'{');
    let lines = || bytes.split(|byte| *byte == b'\n').take(10_000);
    json || lines().any(|line| line.starts_with(b"kind:"))
        && lines().any(|line| line.starts_with(b"apiVersion:"))
}

/// Every object of a document in JSON or YAML; lists are taken apart.
///
/// # Errors
/// A line that says why it can't be read; nothing of its content is in it.
pub fn objects(bytes: &[u8]) -> Result<Vec<Object>, String> {
    let values = if bytes.trim_ascii_start().first() == Some(&b'{') { json(bytes) } else { yaml(bytes) }?;
    let mut objects = Vec::new();
    for value in values {
        flatten(value, &mut objects);
    }
    Ok(objects)
}

fn json(bytes: &[u8]) -> Result<Vec<Value>, String> {
    if bytes.len() > MAX_LEN {
        return Err(format!("{} bytes; more than {MAX_LEN} are refused", bytes.len()));
    }
    let read = serde_json::from_slice(bytes).map(|value| vec![value]);
    read.map_err(|e| format!("not JSON: line {}, column {}", e.line(), e.column()))
}

fn yaml(bytes: &[u8]) -> Result<Vec<Value>, String> {
    if bytes.len() > MAX_YAML_LEN {
        return Err(format!("{} bytes of YAML; more than {MAX_YAML_LEN} are refused", bytes.len()));
    }
    let documents = serde_norway::Deserializer::from_slice(bytes).take(1000).map(|document| {
        let value = Value::deserialize(document)?;
        if value.is_object() || value.is_null() {
            Ok(value)
        } else {
            Err(serde_norway::Error::custom("no object"))
        }
    });
    let read: Result<_, serde_norway::Error> = documents.collect();
    read.map_err(|e| {
        e.location().map_or("not YAML of an object".to_owned(), |at| format!("not YAML: line {}", at.line()))
    })
}

fn flatten(mut value: Value, objects: &mut Vec<Object>) {
    let list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items").map(Value::take) {
        // The items of a list of one kind do not repeat it.
        Some(Value::Array(items)) if list => {
            let kind = value["kind"].as_str().unwrap_or("").trim_end_matches("List").to_owned();
            for mut item in items {
                if let Some(object) = item.as_object_mut().filter(|_| !kind.is_empty()) {
                    object.entry("kind").or_insert_with(|| Value::String(kind.clone()));
                }
                objects.extend(Object::new(item));
            }
        }
        _ => objects.extend(Object::new(value)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_and_yaml_are_read_alike_and_lists_are_taken_apart() {
        let yaml = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: cacerts\n  namespace: istio-system\n  resourceVersion: \"7\"\n  creationTimestamp: \"2026-06-01T12:00:00Z\"\ndata:\n  a: aGk=\n  b: '!'\nstringData:\n  c: plain\n";
        assert!(seems(yaml.as_bytes()));
        let [secret] = objects(yaml.as_bytes()).unwrap().try_into().ok().unwrap();
        assert_eq!(secret.place(), "Secret istio-system/cacerts");
        assert_eq!(
            (secret.data["a"].as_slice(), secret.data["c"].as_slice()),
            (b"hi".as_slice(), b"plain".as_slice())
        );
        assert_eq!(
            (secret.undecodable.as_slice(), secret.resource_version()),
            (["b".to_owned()].as_slice(), Some("7"))
        );
        assert_eq!(secret.changed_at, Some(1_780_315_200));
        assert!(secret.value.get("data").is_none());
        let list = r#"{"kind":"ConfigMapList","items":[{"metadata":{"name":"x","namespace":"n"},"data":{"k":"v"}}]}"#;
        let [map] = objects(list.as_bytes()).unwrap().try_into().ok().unwrap();
        assert_eq!((map.place().as_str(), map.data["k"].as_slice()), ("ConfigMap n/x", b"v".as_slice()));
        assert_eq!(objects(b"a: b\n---\nkind: X\nmetadata: {name: y}\n").unwrap().len(), 1);
        assert!(objects(b"{").is_err_and(|why| why.contains("line 1")));
        assert!(objects(b"- 1").is_err() && !seems(b"hello"));
    }

    #[test]
    fn what_a_secret_was_applied_from_is_not_kept() {
        let json = r#"{"kind":"Secret","metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{key}"}}}"#;
        let found = objects(json.as_bytes()).unwrap();
        assert!(!found[0].value.to_string().contains("{key}"));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = objects(&bytes);
            let mut json = b"{\"kind\":\"Secret\",\"data\":{\"a\":\"".to_vec();
            json.extend(&bytes);
            let _ = objects(&json);
        }
    }
}
