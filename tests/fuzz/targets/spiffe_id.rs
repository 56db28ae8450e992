//! A SPIFFE ID from a certificate or a file: one spelling for each identity.
#![no_main]

use isthmus_pki::{SpiffeId, TrustDomain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(domain) = TrustDomain::parse(text) {
        assert_eq!(domain.as_str(), text);
        assert_eq!(SpiffeId::parse(&format!("spiffe://{text}")).as_ref(), Ok(&domain.id()));
    }
    let Ok(id) = SpiffeId::parse(text) else { return };
    assert_eq!(id.to_string(), text, "an ID has one spelling");
    assert_eq!(id.is_trust_domain(), id.path().is_empty());
    if let Some((site, name)) = id.node() {
        let again = isthmus_pki::id::node_id(id.trust_domain(), site, name);
        assert_eq!(again.as_ref(), Ok(&id));
    }
});
