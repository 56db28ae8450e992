//! `pkcs11:` URIs (RFC 7512), as far as they name an EC key.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use cryptoki::slot::TokenInfo;

/// Longest URI that is read, in bytes.
const MAX_LEN: usize = 2048;

/// Why a text is not a URI that we use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Another scheme.
    #[error("a token's URI starts with \"pkcs11:\", such as pkcs11:token=isthmus;object=root")]
    Scheme,
    /// Too long to be one.
    #[error("longer than {MAX_LEN} bytes")]
    TooLong,
    /// Not `name=value`, or twice the same name.
    #[error("{0:?} is not an attribute of the form name=value, or is there twice")]
    Attribute(String),
    /// An attribute that says more than we can check.
    #[error(
        "attribute {0:?} is not known here; use token, serial, manufacturer, model, slot-id, object, id, module-path, pin-source"
    )]
    Unknown(String),
    /// Broken percent-encoding, or not UTF-8 where it must be.
    #[error("the value of {0:?} can't be decoded")]
    Value(String),
    /// A secret where everybody can read it.
    #[error("a PIN does not belong into a URI; put it into a file (mode 0600) and name that")]
    PinValue,
    /// Not a private key.
    #[error("type={0:?}: only private keys are used here")]
    Type(String),
}

/// Names a key in a token; what is absent matches anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uri {
    text: String,
    token: Option<String>,
    serial: Option<String>,
    manufacturer: Option<String>,
    model: Option<String>,
    slot: Option<u64>,
    object: Option<String>,
    id: Option<Vec<u8>>,
    module_path: Option<PathBuf>,
    pin_source: Option<PathBuf>,
}

impl Uri {
    /// Reads one.
    ///
    /// # Errors
    /// If it is not such a URI, holds a PIN, or an attribute that we would have to ignore.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        if text.len() > MAX_LEN {
            return Err(UriError::TooLong);
        }
        let rest = text.strip_prefix("pkcs11:").ok_or(UriError::Scheme)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self { text: text.to_owned(), ..Self::default() };
        for attribute in path.split(';').chain(query.split('&')).filter(|attribute| !attribute.is_empty()) {
            uri.take(attribute)?;
        }
        Ok(uri)
    }

    fn take(&mut self, attribute: &str) -> Result<(), UriError> {
        let bad = || UriError::Attribute(attribute.to_owned());
        let (name, value) = attribute.split_once('=').ok_or_else(bad)?;
        let bytes = decode(value).ok_or_else(|| UriError::Value(name.to_owned()))?;
        let text = || String::from_utf8(bytes.clone()).map_err(|_| UriError::Value(name.to_owned()));
        let fresh = match name {
            "token" => self.token.replace(text()?).is_none(),
            "serial" => self.serial.replace(text()?).is_none(),
            "manufacturer" => self.manufacturer.replace(text()?).is_none(),
            "model" => self.model.replace(text()?).is_none(),
            "object" => self.object.replace(text()?).is_none(),
            "id" => self.id.replace(bytes).is_none(),
            "slot-id" => {
                let number = text()?.parse().map_err(|_| UriError::Value(name.to_owned()))?;
                self.slot.replace(number).is_none()
            }
            "module-path" => self.module_path.replace(text()?.into()).is_none(),
            "pin-source" => {
                let path = text()?;
                let path = path.strip_prefix("file://").or(path.strip_prefix("file:")).unwrap_or(&path);
                self.pin_source.replace(path.into()).is_none()
            }
            "pin-value" => return Err(UriError::PinValue),
            "type" if value == "private" => true,
            "type" => return Err(UriError::Type(value.to_owned())),
            _ => return Err(UriError::Unknown(name.to_owned())),
        };
        if fresh { Ok(()) } else { Err(bad()) }
    }

    /// The key's label.
    pub fn object(&self) -> Option<&str> {
        self.object.as_deref()
    }

    /// The same token, and another key in it: `object` takes the place of the label and the CKA_ID. It must not need percent-encoding.
    #[must_use]
    pub fn renamed(&self, object: &str) -> Self {
        let rest = self.text.strip_prefix("pkcs11:").unwrap_or(&self.text);
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let kept = |part: &&str| !part.is_empty() && !part.starts_with("object=") && !part.starts_with("id=");
        let object_part = format!("object={object}");
        let parts: Vec<&str> = path.split(';').filter(kept).chain([object_part.as_str()]).collect();
        let query: Vec<&str> = query.unwrap_or_default().split('&').filter(kept).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        let text = format!("pkcs11:{}{mark}{}", parts.join(";"), query.join("&"));
        Self { text, object: Some(object.to_owned()), id: None, ..self.clone() }
    }

    /// The key's CKA_ID.
    pub fn id(&self) -> Option<&[u8]> {
        self.id.as_deref()
    }

    /// The library that speaks to the token.
    pub fn module_path(&self) -> Option<&Path> {
        self.module_path.as_deref()
    }

    /// A file with the PIN.
    pub fn pin_source(&self) -> Option<&Path> {
        self.pin_source.as_deref()
    }

    /// Tokens pad what they say with spaces; the library that we use takes them off.
    pub(crate) fn matches(&self, slot: u64, token: &TokenInfo) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_ref().is_none_or(|wanted| wanted == has);
        self.slot.is_none_or(|wanted| wanted == slot)
            && is(&self.token, token.label())
            && is(&self.serial, token.serial_number())
            && is(&self.manufacturer, token.manufacturer_id())
            && is(&self.model, token.model())
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        Self::parse(text)
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| u8::try_from(char::from(byte?).to_digit(16)?).ok();
        bytes.push(if byte == b'%' { digit(rest.next())? << 4 | digit(rest.next())? } else { byte });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_rfc_7512_shows() {
        let uri = Uri::parse(
            "pkcs11:token=The%20Software%20PKCS%2311;object=my-key;id=%69%95?module-path=/lib/x.so&pin-source=file:/etc/pin",
        );
        let uri = uri.unwrap();
        assert_eq!(uri.token.as_deref(), Some("The Software PKCS#11"));
        assert_eq!((uri.object(), uri.id()), (Some("my-key"), Some(&[0x69, 0x95][..])));
        assert_eq!(uri.module_path(), Some(Path::new("/lib/x.so")));
        assert_eq!(uri.pin_source(), Some(Path::new("/etc/pin")));
        assert_eq!(Uri::parse("pkcs11:slot-id=7;type=private").unwrap().slot, Some(7));
        // RFC 7512 allows `=` and `&` in values of the path: a strange label, and no PIN.
        assert_eq!(Uri::parse("pkcs11:object=a&pin-value=1").unwrap().object(), Some("a&pin-value=1"));
    }

    #[test]
    fn renamed_is_another_key_of_the_same_token() {
        for (text, renamed) in [
            ("pkcs11:token=a;object=b;id=%01", "pkcs11:token=a;object=next"),
            (
                "pkcs11:object=b;serial=7?module-path=/lib/x.so",
                "pkcs11:serial=7;object=next?module-path=/lib/x.so",
            ),
            ("pkcs11:?object=b&pin-source=/p", "pkcs11:object=next?pin-source=/p"),
        ] {
            let uri = Uri::parse(text).unwrap().renamed("next");
            assert_eq!(uri.to_string(), renamed);
            assert_eq!(Uri::parse(renamed), Ok(uri));
        }
    }

    #[test]
    fn refuses_what_it_would_have_to_ignore() {
        for (text, error) in [
            ("http://x", UriError::Scheme),
            ("pkcs11:token", UriError::Attribute("token".into())),
            ("pkcs11:token=a;token=b", UriError::Attribute("token=b".into())),
            ("pkcs11:colour=red", UriError::Unknown("colour".into())),
            ("pkcs11:object=%zz", UriError::Value("object".into())),
            ("pkcs11:object=%ff", UriError::Value("object".into())),
            ("pkcs11:slot-id=x", UriError::Value("slot-id".into())),
            ("pkcs11:object=a?pin-value=1234", UriError::PinValue),
            ("pkcs11:type=cert", UriError::Type("cert".into())),
        ] {
            assert_eq!(Uri::parse(text), Err(error), "{text}");
        }
        assert_eq!(Uri::parse(&format!("pkcs11:token={}", "a".repeat(2048))), Err(UriError::TooLong));
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in ".{0,80}") {
            let _ = Uri::parse(&text);
            let _ = Uri::parse(&format!("pkcs11:{text}"));
        }
    }
}
