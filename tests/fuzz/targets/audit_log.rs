//! An audit log as isthmusctl reads it: lines of files, a signed head, a proof. What verifies was written by a chain.
#![no_main]

use isthmus_pki::audit::{Consistency, Hash, Head, MAX_LINE, Record, SignedHead, Verifier, proof};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut verifier = Verifier::default();
    let mut read = 0;
    for line in data.split(|byte| *byte == b'\n') {
        assert!(Record::parse(line).is_err() || line.len() <= MAX_LINE);
        if verifier.line(line).is_err() {
            break;
        }
        read += 1;
    }
    // Unless the first line was broken, the chain is as long as what was read.
    assert!(verifier.chain().is_none() || read == 0 || verifier.size() == verifier.first() + read - 1);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = SignedHead::parse(text);
    }
    if let Ok(proof) = Consistency::parse(data) {
        let kept = Head { size: proof.first, root: proof.first_root, iat: 0 };
        // A site CA's signature is not found by chance.
        assert!(proof.check(&kept).is_err());
    }
    if let Some((numbers, hashes)) = data.split_at_checked(16) {
        let number = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
        let path: Vec<Hash> = hashes.chunks(32).map(Hash::leaf).collect();
        proof::verify_inclusion(Hash::NONE, number(0), number(8), &path, Hash::NONE);
        proof::verify_consistency(number(0), Hash::NONE, number(8), Hash::NONE, &path);
        for ranges in [proof::inclusion(number(0), number(8)), proof::consistency(number(0), number(8))]
            .into_iter()
            .flatten()
        {
            assert!(ranges.len() <= 65);
        }
    }
});
