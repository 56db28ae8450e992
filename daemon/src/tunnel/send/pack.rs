//! Which neighbours in an outbox leave as one message.

use isthmus_tunnel::buffer::{Entry, Outbox, OuterPath};

use crate::tunnel::sys::Message;

/// Datagrams in one message at most; newer kernels take 128, all that know `UDP_SEGMENT` take these.
const SEGMENTS: usize = 64;
/// Bytes of one message at most: what a UDP packet over IPv4 can hold.
const BYTES: usize = 65_507;

/// The outbox as messages, in order. Neighbours of one path, ECN and size, of which the last may be shorter, become one message where
/// `may_merge(path, size)`. A run that needs several messages is cut evenly, so that none of them is a stub.
pub(super) fn messages<'a>(
    outbox: &'a Outbox,
    mut may_merge: impl FnMut(OuterPath, usize) -> bool,
) -> impl Iterator<Item = Message<'a>> {
    let (mut entries, bytes) = (outbox.entries(), outbox.bytes());
    let mut run: &[Entry] = &[];
    let mut share = 0;
    std::iter::from_fn(move || {
        if run.is_empty() {
            let first = entries.first()?;
            let length = if may_merge(first.path, first.range.len()) { run_length(entries) } else { 1 };
            (run, entries) = entries.split_at(length);
            share = even_share(length, first.range.len());
        }
        let (now, later) = run.split_at(share.min(run.len()));
        run = later;
        Some(message(now, bytes))
    })
}

/// Datagrams in a message.
pub(super) fn datagrams(message: &Message<'_>) -> u64 {
    let count = message.segment.map_or(1, |size| message.bytes.len().div_ceil(usize::from(size.max(1))));
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// How many entries from the first on could be one message, if messages had no limit.
fn run_length(entries: &[Entry]) -> usize {
    let Some(first) = entries.first() else { return 0 };
    let alike = |entry: &&Entry| (entry.path, entry.ecn) == (first.path, first.ecn);
    let size = first.range.len();
    let full = entries.iter().take_while(alike).take_while(|entry| entry.range.len() == size).count();
    let tail = entries.get(full).filter(alike).is_some_and(|entry| entry.range.len() < size);
    full + usize::from(tail)
}

/// Datagrams in each message of a run.
fn even_share(length: usize, size: usize) -> usize {
    let most = (BYTES / size.max(1)).clamp(1, SEGMENTS);
    length.div_ceil(length.div_ceil(most).max(1)).max(1)
}

fn message<'a>(entries: &[Entry], bytes: &'a [u8]) -> Message<'a> {
    let (first, last) = (&entries[0], &entries[entries.len() - 1]);
    Message {
        bytes: &bytes[first.range.start..last.range.end],
        segment: if entries.len() > 1 { u16::try_from(first.range.len()).ok() } else { None },
        path: first.path,
        ecn: first.ecn,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use isthmus_tunnel::ecn::Ecn;
    use proptest::prelude::*;

    use super::*;

    fn path(n: u16) -> OuterPath {
        SocketAddr::from(([192, 0, 2, 1], n)).into()
    }

    fn outbox(datagrams: &[(usize, u16, Ecn)]) -> Outbox {
        let mut outbox = Outbox::new();
        for (n, (size, port, ecn)) in (0_u8..).cycle().zip(datagrams) {
            outbox.push(&vec![n; *size], path(*port), *ecn);
        }
        outbox
    }

    fn shape(outbox: &Outbox) -> Vec<(usize, Option<u16>)> {
        messages(outbox, |_, _| true).map(|message| (message.bytes.len(), message.segment)).collect()
    }

    #[test]
    fn a_burst_of_47_leaves_as_24_and_23() {
        let burst = outbox(&[(1452, 1, Ecn::Ect0); 47]);
        assert_eq!(shape(&burst), [(24 * 1452, Some(1452)), (23 * 1452, Some(1452))]);
        let tail: Vec<_> =
            std::iter::repeat_n((1452, 1, Ecn::Ect0), 44).chain([(100, 1, Ecn::Ect0)]).collect();
        assert_eq!(shape(&outbox(&tail)), [(44 * 1452 + 100, Some(1452))]);
        assert_eq!(
            shape(&outbox(&[(96, 1, Ecn::NotEct); 130])),
            [(44 * 96, Some(96)), (44 * 96, Some(96)), (42 * 96, Some(96))]
        );
    }

    #[test]
    fn a_lone_datagram_has_no_segment_size() {
        let mixed = [
            (100, 1, Ecn::NotEct),
            (200, 1, Ecn::NotEct),
            (100, 1, Ecn::NotEct),
            (100, 1, Ecn::Ce),
            (100, 2, Ecn::Ce),
        ];
        assert_eq!(shape(&outbox(&mixed)), [(100, None), (300, Some(200)), (100, None), (100, None)]);
        assert_eq!(shape(&Outbox::new()), []);
    }

    proptest! {
        #[test]
        fn messages_are_the_outbox_again_and_within_the_limits(
            datagrams in proptest::collection::vec((prop_oneof![Just(1452_usize), Just(96), 1..3000_usize, Just(60_000)], 0..2_u16, any::<bool>()), 0..200),
            merge in any::<bool>(),
        ) {
            let datagrams: Vec<_> = datagrams.into_iter().map(|(size, port, ce)| (size, port, if ce { Ecn::Ce } else { Ecn::NotEct })).collect();
            let outbox = outbox(&datagrams);
            let mut expected = outbox.iter();
            for message in messages(&outbox, |_, _| merge) {
                prop_assert!(merge || message.segment.is_none());
                prop_assert!(message.bytes.len() <= BYTES);
                let size = message.segment.map_or(message.bytes.len(), usize::from);
                let parts: Vec<&[u8]> = message.bytes.chunks(size).collect();
                prop_assert!(parts.len() <= SEGMENTS);
                prop_assert_eq!(u64::try_from(parts.len()).unwrap(), super::datagrams(&message));
                for part in parts {
                    prop_assert_eq!(expected.next(), Some((part, message.path, message.ecn)));
                }
            }
            prop_assert!(expected.next().is_none());
        }
    }
}
