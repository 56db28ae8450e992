use proptest::prelude::*;

use super::*;
use crate::testing::{Fabric, domain};

#[test]
fn pem_and_concatenated_der_are_the_same() {
    let fabric = Fabric::new("td");
    let roots = [fabric.root_certificate(), Fabric::new("td").root_certificate()];
    let bundle = Bundle::parse(to_pem(&roots).as_bytes()).unwrap();
    assert_eq!(bundle.trust_domain(), &domain("td"));
    assert_eq!(bundle.anchors(), roots);
    assert_eq!(certificates(&bundle.to_der()).unwrap(), roots);
}

#[test]
fn refuses_what_is_not_a_bundle_of_one_domain() {
    let fabric = Fabric::new("td");
    let other = Fabric::new("other");
    let pem = to_pem(&[fabric.root_certificate()]);
    let mixed = to_pem(&[fabric.root_certificate(), other.root_certificate()]);
    assert_eq!(Bundle::parse(mixed.as_bytes()), Err(Error::Mixed(domain("td"), domain("other"))));
    let site = Bundle::parse(to_pem(&[fabric.site.certificate().clone()]).as_bytes());
    assert!(matches!(site, Err(Error::NotAnAnchor { number: 1, .. })), "{site:?}");
    assert_eq!(Bundle::parse(b""), Err(Error::Empty));
    let key = pem.clone() + &crate::key::Key::generate(crate::key::Curve::P256).unwrap().to_pem();
    assert!(matches!(Bundle::parse(key.as_bytes()), Err(Error::Label { number: 2, .. })));
    let damaged = pem.clone() + "-----BEGIN CERTIFICATE-----\nAAAA\n";
    assert!(matches!(Bundle::parse(damaged.as_bytes()), Err(Error::Pem(_))));
    let mut der = fabric.root_certificate().to_vec();
    der.push(0);
    assert!(certificates(&der).is_err());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Bundle::parse(&bytes);
        bytes.insert(0, 0x30);
        let _ = Bundle::parse(&bytes);
        let _ = Facts::parse(&bytes);
    }

    #[test]
    fn a_flipped_byte_never_panics(at in 0usize..2000, bit in 0u8..8) {
        let mut der = Fabric::shared().root_certificate().to_vec();
        let at = at % der.len();
        der[at] ^= 1 << bit;
        let _ = Bundle::parse(&der);
    }
}
