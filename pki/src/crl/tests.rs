use proptest::prelude::*;

use super::*;
use crate::{
    TrustStore,
    authority::{Reason, Revoked, crl_number},
    testing::{Fabric, NOW},
};

#[test]
fn reads_der_and_pem() {
    let fabric = Fabric::shared();
    let der = fabric.crl_der(&[fabric.site.facts()], 7, false);
    let pem = pem::encode(&pem::Pem::new("X509 CRL", der.clone()));
    let crl = Crl::parse(&der).unwrap();
    assert_eq!(Crl::parse(pem.as_bytes()), Ok(crl.clone()));
    assert_eq!((crl.der(), crl.issuer()), (der.as_slice(), fabric.root.facts().subject.as_str()));
    assert_eq!(
        (crl.this_update(), crl.next_update()),
        (NOW.unix_timestamp(), NOW.unix_timestamp() + 30 * 86_400)
    );
    assert!(crl.revokes(fabric.site.facts()));
    assert!(!crl.revokes(Fabric::new("td").site.facts()));
}

#[test]
fn lists_signed_ahead_at_the_ceremony_are_read_and_the_last_one_counts() {
    let fabric = Fabric::shared();
    let revoked = Revoked {
        serial: hex::decode(&fabric.site.facts().serial).unwrap(),
        at: NOW,
        reason: Reason::KeyCompromise,
    };
    let month = |index: u16| {
        let begins = NOW + time::Duration::days(30) * i32::from(index);
        let (number, ends) = (crl_number(NOW, index), begins + time::Duration::days(31));
        Crl::parse(&fabric.root.sign_crl(std::slice::from_ref(&revoked), number, begins, ends).unwrap())
            .unwrap()
    };
    assert!(month(0).revokes(fabric.site.facts()));
    let store = TrustStore::from(fabric.bundle()).with_crls([month(1), month(2), month(0)]).unwrap();
    let last = NOW + time::Duration::days(60);
    assert_eq!(store.crls().map(Crl::this_update).collect::<Vec<_>>(), [last.unix_timestamp()]);
}

#[test]
fn refuses_what_it_can_not_go_by() {
    let fabric = Fabric::shared();
    let der = fabric.crl_der(&[], 1, false);
    assert_eq!(Crl::parse(&fabric.crl_der(&[], 1, true)), Err(CrlError::Partial));
    assert_eq!(Crl::parse(&vec![0x30; MAX_LEN + 1]), Err(CrlError::TooLong(MAX_LEN + 1)));
    assert!(matches!(Crl::parse(fabric.site.certificate()), Err(CrlError::Der(_))));
    assert!(matches!(Crl::parse(&der[..der.len() - 1]), Err(CrlError::Der(_))));
    assert!(matches!(Crl::parse(&[der.as_slice(), &[0]].concat()), Err(CrlError::Der(_))));
    let pem = |label: &str| pem::encode(&pem::Pem::new(label, der.clone()));
    for text in ["", &pem("CERTIFICATE"), &(pem("X509 CRL") + &pem("X509 CRL"))] {
        assert!(matches!(Crl::parse(text.as_bytes()), Err(CrlError::Pem(_))), "{text}");
    }
}

#[test]
fn a_stale_list_says_so_and_still_counts() {
    let fabric = Fabric::shared();
    let crl = fabric.crl(&[fabric.site.facts()], 1);
    assert_eq!(crl.stale(NOW + time::Duration::days(30)), None);
    let late = NOW + time::Duration::days(31);
    assert!(crl.stale(late).unwrap().contains("should have been replaced by 2026-07-01T12:00:00Z"));
    let store = TrustStore::from(fabric.bundle()).with_crls([crl]).unwrap();
    assert!(
        crate::verify::verify_ca(fabric.site.certificate(), &store, fabric.site.trust_domain(), late)
            .is_err()
    );
}

#[test]
fn only_a_root_that_is_trusted_revokes() {
    let (fabric, stranger) = (Fabric::shared(), Fabric::new("td"));
    let forged = stranger.crl(&[fabric.site.facts()], 9);
    let store = TrustStore::from(fabric.bundle());
    let issuer = stranger.root.facts().subject.clone();
    assert_eq!(store.clone().with_crls([forged.clone()]), Err(CrlError::UnknownIssuer { issuer }));
    let mut both = store;
    both.insert(Fabric::new("other").bundle());
    assert!(both.with_crls([forged]).is_err());
}

#[test]
fn the_newest_list_of_an_issuer_counts() {
    let fabric = Fabric::shared();
    let (first, second) = (fabric.crl(&[], 9), fabric.crl(&[fabric.site.facts()], 300));
    for order in [[first.clone(), second.clone()], [second.clone(), first]] {
        let store = TrustStore::from(fabric.bundle()).with_crls(order).unwrap();
        assert_eq!(store.crls().collect::<Vec<_>>(), [&second]);
    }
    // A root that goes takes its list with it.
    let mut store = TrustStore::from(fabric.bundle()).with_crls([second]).unwrap();
    store.insert(Fabric::new("td").bundle());
    assert_eq!(store.crls().count(), 0);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Crl::parse(&bytes);
        bytes.insert(0, 0x30);
        let _ = Crl::parse(&bytes);
    }

    #[test]
    fn a_flipped_bit_never_panics(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let fabric = Fabric::shared();
        let mut der = fabric.crl_der(&[fabric.site.facts()], 1, false);
        let at = at.index(der.len());
        der[at] ^= 1 << bit;
        if let Ok(crl) = Crl::parse(&der) {
            prop_assert!(TrustStore::from(fabric.bundle()).with_crls([crl]).is_err());
        }
    }
}
