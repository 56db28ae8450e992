//! JSON that says each thing once: an object with the same key twice is refused, since two readers may take different ones of the two.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Why bytes are not JSON that we are willing to read: what and where, without a word of the content but the repeated key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Reads one JSON value; bytes after it, repeated keys and nesting beyond 128 levels are errors.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice::<Once>(bytes).map(|once| once.0).map_err(|e| Error(e.to_string()))
}

/// Reads one JSON object, as [`parse`] does.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, Error> {
    match parse(bytes)? {
        Value::Object(map) => Ok(map),
        _ => Err(Error("it is not a JSON object".into())),
    }
}

/// A value in which no object has a key twice.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor).map(Self)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Once(value)) = seq.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format_args!("key {key:?} is there twice")));
            }
            let Once(value) = access.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_serde_json_reads_but_no_key_twice() {
        for text in ["null", "true", "-1", "1.5", "\"a\\u00e9\"", "[]", r#"{"a":[1,{"b":{}}],"c":null}"#] {
            assert_eq!(
                parse(text.as_bytes()).unwrap(),
                serde_json::from_str::<Value>(text).unwrap(),
                "{text}"
            );
        }
        for text in [r#"{"a":1,"a":1}"#, r#"[{"x":{"a":1,"b":2,"\u0061":3}}]"#] {
            assert!(
                parse(text.as_bytes()).unwrap_err().to_string().contains("\"a\" is there twice"),
                "{text}"
            );
        }
        for text in ["", "{} {}", "{'a':1}", "[1,]", "\"\u{0}\"", &"[".repeat(200_000)] {
            assert!(parse(text.as_bytes()).is_err());
        }
        assert!(object(b"[]").is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
