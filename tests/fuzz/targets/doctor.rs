//! Files, Kubernetes objects and admin pages that others wrote: examined, explained and predicted about without a panic.
#![no_main]

use isthmus_pki::doctor::{ClusterBuilder, Inventory, examine};
use isthmus_pki::families::{Family, Question, predict};
use isthmus_pki::{blocks, inspect, kubernetes, x509};
use libfuzzer_sys::fuzz_target;
use time::OffsetDateTime;

const NAMES: [&str; 6] =
    ["ca-cert.pem", "ca-key.pem", "root-cert.pem", "cert-chain.pem", "ca-crl.pem", "other"];

fuzz_target!(|data: &[u8]| {
    let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_800);
    for item in inspect::inspect(data, now) {
        let _ = inspect::lines(&item);
    }
    assert!(blocks::blocks(data).len() <= blocks::MAX_BLOCKS);
    let _ = kubernetes::objects(data);
    let mut builder = ClusterBuilder::new("fuzz");
    NAMES.iter().for_each(|name| builder.file("d", name, data, now));
    builder.document("document", data, now);
    builder.envoy("envoy", data);
    let found = examine(&Inventory { clusters: vec![builder.finish()], ..Inventory::default() }, now);
    assert!(found.len() >= 17);
    let file = x509::PemFile::read("", data);
    let chain: Vec<_> = file.certificates.into_iter().map(|c| c.der).collect();
    let crls: Vec<_> = x509::read_crls(data).0.into_iter().map(|list| list.der).collect();
    for family in Family::ALL {
        predict(family, &Question { chain: &chain, roots: &chain, crls: &crls, now });
    }
});
