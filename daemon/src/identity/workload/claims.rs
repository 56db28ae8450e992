//! The claims of a token as `google.protobuf.Struct`.

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde_json::{Map, Value as Json};

/// Deepest nesting that is passed on; decoders of protocol buffers refuse a message soon after. What lies deeper becomes null.
const DEEPEST: usize = 16;

/// All of them. Numbers become doubles, which is all that a Struct has.
pub(super) fn to_struct(claims: Map<String, Json>) -> Struct {
    object(claims, DEEPEST)
}

fn object(members: Map<String, Json>, left: usize) -> Struct {
    Struct { fields: members.into_iter().map(|(name, member)| (name, value(member, left))).collect() }
}

fn value(json: Json, left: usize) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(value) => Kind::BoolValue(value),
        Json::Number(number) => number.as_f64().map_or(Kind::NullValue(0), Kind::NumberValue),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(_) | Json::Object(_) if left == 0 => Kind::NullValue(0),
        Json::Array(list) => Kind::ListValue(ListValue {
            values: list.into_iter().map(|member| value(member, left - 1)).collect(),
        }),
        Json::Object(members) => Kind::StructValue(object(members, left - 1)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_value_has_its_place() {
        let Json::Object(claims) = json!({
            "sub": "spiffe://a/b", "aud": ["x", "y"], "exp": 1_800_000_000u64, "flag": true, "none": null, "more": {"f": -1.5},
        }) else {
            unreachable!()
        };
        let fields = to_struct(claims).fields;
        let kind = |name: &str| fields[name].kind.clone().unwrap();
        assert_eq!(kind("sub"), Kind::StringValue("spiffe://a/b".into()));
        assert_eq!(kind("exp"), Kind::NumberValue(1_800_000_000.0));
        assert_eq!(kind("flag"), Kind::BoolValue(true));
        assert_eq!(kind("none"), Kind::NullValue(0));
        let Kind::ListValue(audience) = kind("aud") else { panic!() };
        assert_eq!(audience.values[1].kind, Some(Kind::StringValue("y".into())));
        let Kind::StructValue(more) = kind("more") else { panic!() };
        assert_eq!(more.fields["f"].kind, Some(Kind::NumberValue(-1.5)));
    }

    #[test]
    fn deep_claims_are_cut_to_what_a_client_can_decode() {
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        let claims = [("deep".to_owned(), deep)].into_iter().collect();
        let bytes = to_struct(claims).encode_to_vec();
        assert!(Struct::decode(&bytes[..]).is_ok());
    }
}
