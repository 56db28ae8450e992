//! Settings (RFC 9113 section 6.5): ours are constant, and of the client's one matters.

use crate::{
    Fault,
    frame::{Code, LARGEST, fault},
    window,
};

/// Most streams that are open at a time.
pub(crate) const STREAMS: usize = 16;

const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// What the client is told: the rest is as the standard has it.
pub(crate) fn ours() -> Vec<u8> {
    let number = |value: usize| u32::try_from(value).expect("a small constant").to_be_bytes();
    [(MAX_CONCURRENT_STREAMS, STREAMS), (MAX_HEADER_LIST_SIZE, crate::hpack::LONGEST)]
        .into_iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &number(value)].concat())
        .collect()
}

/// Checks what the client says, and finds its initial window for streams. Nothing else changes what is sent here.
pub(crate) fn initial_window(payload: &[u8]) -> Result<Option<i64>, Fault> {
    let (settings, rest) = payload.as_chunks::<6>();
    if !rest.is_empty() {
        return fault(Code::FrameSize, "settings of another length than theirs");
    }
    let mut initial = None;
    for [a, b, value @ ..] in settings {
        let value = u32::from_be_bytes(*value);
        match u16::from_be_bytes([*a, *b]) {
            ENABLE_PUSH if value > 1 => return fault(Code::Protocol, "ENABLE_PUSH is 0 or 1"),
            INITIAL_WINDOW_SIZE if i64::from(value) > window::MOST => {
                return fault(Code::FlowControl, "INITIAL_WINDOW_SIZE is too large");
            }
            INITIAL_WINDOW_SIZE => initial = Some(i64::from(value)),
            MAX_FRAME_SIZE if !frame_sizes().contains(&value) => {
                return fault(Code::Protocol, "MAX_FRAME_SIZE is from 16384 to 16777215");
            }
            _ => {}
        }
    }
    Ok(initial)
}

fn frame_sizes() -> std::ops::RangeInclusive<u32> {
    u32::try_from(LARGEST).expect("a small constant")..=(1 << 24) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_settings_are_checked() {
        let setting = |name: u16, value: u32| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        assert_eq!(initial_window(&[]), Ok(None));
        assert_eq!(initial_window(&[setting(4, 5), setting(4, 7), setting(99, 1)].concat()), Ok(Some(7)));
        for (name, value, code) in [
            (2, 2, Code::Protocol),
            (4, 1 << 31, Code::FlowControl),
            (5, 16_383, Code::Protocol),
            (5, 1 << 24, Code::Protocol),
        ] {
            assert_eq!(initial_window(&setting(name, value)).map_err(|fault| fault.code), Err(code));
        }
        assert_eq!(initial_window(&[0; 5]).map_err(|fault| fault.code), Err(Code::FrameSize));
    }
}
