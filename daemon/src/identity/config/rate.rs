//! Rates such as "500/s".

use std::time::Duration;

use toml::Spanned;

use crate::config::Checker;

/// So many in each second, and after a quiet while a burst of [`Rate::BURST`] times as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u32);

impl Rate {
    /// A new site CA makes all workloads of a node come at once: that must pass.
    const BURST: u32 = 20;

    /// From 1.
    pub const fn per_second(number: u32) -> Self {
        assert!(number > 0, "a rate of nothing");
        Self(number)
    }

    /// Between two.
    pub fn interval(self) -> Duration {
        Duration::from_secs(1) / self.0
    }

    /// How long it takes to earn a whole burst.
    pub fn burst(self) -> Duration {
        Duration::from_secs(u64::from(Self::BURST))
    }
}

/// "off" is no limit.
#[expect(clippy::option_option, reason = "no limit is one fact, a bad one another")]
pub(super) fn check_rate(
    c: &mut Checker<'_>,
    raw: Option<Spanned<String>>,
    default: Rate,
) -> Option<Option<Rate>> {
    let Some(raw) = raw else { return Some(Some(default)) };
    let parsed = parse(raw.get_ref());
    if parsed.is_none() {
        let message = format!("\"{}\" is not a rate", raw.get_ref().escape_debug());
        c.problem(raw.span(), message, "write a number from 1 to 1000000 and \"/s\": \"500/s\"; or \"off\"");
    }
    parsed
}

#[expect(clippy::option_option, reason = "as above")]
fn parse(text: &str) -> Option<Option<Rate>> {
    if text == "off" {
        return Some(None);
    }
    let number = text.strip_suffix("/s")?.parse().ok().filter(|number| (1..=1_000_000).contains(number))?;
    Some(Some(Rate(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(parse("500/s"), Some(Some(Rate(500))));
        assert_eq!(parse("off"), Some(None));
        for wrong in ["0/s", "500", "500/m", "-1/s", "1000001/s", "", "/s"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
