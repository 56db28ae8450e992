//! What makes header fields a request (RFC 9113 section 8.2 and 8.3).

use crate::Field;

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// As it came.
    pub method: Vec<u8>,
    /// As it came.
    pub path: Vec<u8>,
    /// All but those whose names begin with a colon.
    pub fields: Vec<Field>,
}

/// Those that belong to HTTP/1.
const FOREIGN: [&[u8]; 5] =
    [b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"];

impl Request {
    /// `None`: malformed. `:authority` may be anything: clients send a socket's path there, and nobody asks for it.
    pub(crate) fn new(fields: Vec<Field>) -> Option<Self> {
        let [mut method, mut path, mut scheme, mut authority] = [const { None }; 4];
        let mut rest = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            let slot = match &name[..] {
                b":method" => &mut method,
                b":path" => &mut path,
                b":scheme" => &mut scheme,
                b":authority" => &mut authority,
                _ if is_sound(&name, &value) => {
                    rest.push((name, value));
                    continue;
                }
                _ => return None,
            };
            // Each once, and before all others.
            if !rest.is_empty() || slot.replace(value).is_some() {
                return None;
            }
        }
        let path: Vec<u8> = path.filter(|path| !path.is_empty())?;
        scheme?;
        Some(Self { method: method?, path, fields: rest })
    }

    /// What it says about its length. Two that differ, or no number: malformed, `None`.
    pub(crate) fn length(&self) -> Option<Option<u64>> {
        let mut length = None;
        for (_, value) in self.fields.iter().filter(|(name, _)| name == b"content-length") {
            let number =
                value.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(value).ok()?.parse().ok());
            let number: u64 = number.flatten()?;
            if length.replace(number).is_some_and(|before| before != number) {
                return None;
            }
        }
        Some(length)
    }
}

/// Fields behind the content must be sound as well, and none of them may begin with a colon.
pub(crate) fn are_trailers(fields: &[Field]) -> bool {
    fields.iter().all(|(name, value)| is_sound(name, value))
}

fn is_sound(name: &[u8], value: &[u8]) -> bool {
    let is_token = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_text = |byte: &u8| !matches!(byte, 0 | b'\r' | b'\n');
    let is_ours = !FOREIGN.contains(&name) && (name != b"te" || value == b"trailers");
    !name.is_empty() && name.iter().all(is_token) && value.iter().all(is_text) && is_ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(list: &[(&str, &str)]) -> Option<Request> {
        let start = [(":method", "POST"), (":scheme", "http"), (":path", "/a")];
        let all = start.iter().chain(list);
        Request::new(all.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect())
    }

    #[test]
    fn requests_are_told_from_what_is_malformed() {
        assert!(request(&[(":authority", "%2Frun%2Fa.sock"), ("te", "trailers"), ("a-b", "x y")]).is_some());
        for bad in [
            &[(":path", "/b")][..],
            &[(":status", "200")],
            &[("a", "b"), (":authority", "x")],
            &[("A", "b")],
            &[("", "b")],
            &[("a b", "c")],
            &[("a", "b\r\nc")],
            &[("connection", "close")],
            &[("te", "gzip")],
        ] {
            assert_eq!(request(bad), None, "{bad:?}");
        }
        let without = vec![(b":method".to_vec(), b"GET".to_vec()), (b":path".to_vec(), b"/".to_vec())];
        assert_eq!(Request::new(without), None, "no scheme");
    }

    #[test]
    fn lengths_agree_or_are_none() {
        let length = |list: &[(&str, &str)]| request(list).unwrap().length();
        assert_eq!(length(&[]), Some(None));
        assert_eq!(length(&[("content-length", "5"), ("content-length", "5")]), Some(Some(5)));
        for bad in ["", "-1", "+1", "99999999999999999999", "1,1"] {
            assert_eq!(length(&[("content-length", bad)]), None, "{bad}");
        }
        assert_eq!(length(&[("content-length", "5"), ("content-length", "6")]), None);
    }
}
