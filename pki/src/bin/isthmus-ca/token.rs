//! Keys in PKCS#11 tokens, and the one-line files that name them in the place of a key file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use isthmus_pki::Key;
use isthmus_token::{Curve, Location, Uri};

use crate::secret;

/// What every token's URI starts with.
const SCHEME: &[u8] = b"pkcs11:";

/// A key to be made in a token.
#[derive(clap::Args)]
pub(crate) struct Make {
    /// Make the key in this PKCS#11 token, such as "pkcs11:token=isthmus;object=root".
    #[arg(long, value_name = "URI")]
    token: Option<Uri>,
    /// The token's PKCS#11 module, such as /usr/lib/softhsm/libsofthsm2.so.
    #[arg(long, value_name = "FILE", requires = "token")]
    module: Option<PathBuf>,
    /// File (mode 0600) with the token's PIN; without it, it is asked for.
    #[arg(long, value_name = "FILE", requires = "token")]
    pin_file: Option<PathBuf>,
}

impl Make {
    /// Where, if in a token at all.
    pub(crate) fn uri(&self) -> Option<&Uri> {
        self.token.as_ref()
    }

    /// Makes the key; the text names it, for a file.
    pub(crate) fn make(&self, uri: &Uri, curve: Curve) -> anyhow::Result<(Key, String)> {
        let module = self.module.clone().or(uri.module_path().map(Into::into));
        let module = module.context("--token needs --module FILE, the library that speaks to the token")?;
        let text = reference(uri, &module)?;
        let pin = secret::pin(self.pin_file.as_deref().or(uri.pin_source()))?;
        let key = Location::new(uri.clone(), Some(module), &pin)?.generate(curve)?;
        Ok((Key::external(Arc::new(key))?, text))
    }
}

/// True if the text of a key file names a token instead.
pub(crate) fn is_reference(text: &[u8]) -> bool {
    text.starts_with(SCHEME)
}

/// The URI in such a text.
pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Uri> {
    Ok(Uri::parse(std::str::from_utf8(text).context("not a text")?.trim())?)
}

/// Opens the key that a URI names.
pub(crate) fn open(uri: &Uri, module: Option<&Path>, pin_file: Option<&Path>) -> anyhow::Result<Key> {
    let pin = secret::pin(pin_file.or(uri.pin_source()))?;
    Ok(Key::in_token(&Location::new(uri.clone(), module.map(Into::into), &pin)?)?)
}

/// The URI with the module in it.
fn reference(uri: &Uri, module: &Path) -> anyhow::Result<String> {
    let module = std::path::absolute(module)?;
    let text = uri.to_string();
    let (path, query) = text.split_once('?').unwrap_or((&text, ""));
    let rest = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("module-path="));
    let module = format!("module-path={}", module.to_str().context("the module's path is not UTF-8")?);
    if module.contains(['%', '&', '#', ';', ' ']) {
        bail!("{module}: give a path without %, &, #, ; and blanks");
    }
    let query: Vec<_> = std::iter::once(module.as_str()).chain(rest).collect();
    Ok(format!("{path}?{}\n", query.join("&")))
}
