//! Points in time: RFC 3339 in documents, ages in tables.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::text;

/// A point in time, as a rule to the second, within the years that RFC 3339 can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(OffsetDateTime);

impl Moment {
    /// From seconds since the Unix epoch. Nothing for 0, which stands for "not set" on the wire, and for years outside 0 to 9999.
    pub(crate) fn from_unix(seconds: i64) -> Option<Self> {
        let moment = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
        (seconds != 0 && (0..=9999).contains(&moment.year())).then_some(Self(moment))
    }

    /// From milliseconds since the Unix epoch, to the millisecond; nothing where [`Moment::from_unix`] has nothing.
    pub(crate) fn from_unix_milliseconds(milliseconds: i64) -> Option<Self> {
        let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(milliseconds) * 1_000_000).ok()?;
        (milliseconds != 0 && (0..=9999).contains(&moment.year())).then_some(Self(moment))
    }

    /// The present.
    pub(crate) fn now() -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        i64::try_from(seconds).ok().and_then(Self::from_unix).unwrap_or(Self(OffsetDateTime::UNIX_EPOCH))
    }

    /// How long ago this was; "0s" when a clock that runs ahead says that it is still to come.
    pub(crate) fn age(self, now: Self) -> String {
        text::span(now.seconds_after(self))
    }

    /// "in 3h4m" or "12s ago".
    pub(crate) fn distance(self, now: Self) -> String {
        if self > now {
            format!("in {}", text::span(self.seconds_after(now)))
        } else {
            format!("{} ago", self.age(now))
        }
    }

    fn seconds_after(self, earlier: Self) -> u64 {
        u64::try_from(self.0.unix_timestamp() - earlier.0.unix_timestamp()).unwrap_or(0)
    }

    /// RFC 3339 with three digits of the second in any case, so that moments stand below each other.
    pub(crate) fn to_millisecond(self) -> String {
        let moment = self.0;
        let (date, time) = (moment.date(), moment.time());
        let (hour, minute, second, millisecond) = time.as_hms_milli();
        format!("{date}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }

    fn rfc3339(self) -> String {
        self.0.format(&Rfc3339).expect("the year is within 0 to 9999 and the offset is UTC")
    }
}

impl From<Moment> for OffsetDateTime {
    fn from(moment: Moment) -> Self {
        moment.0
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.rfc3339())
    }
}

/// The age, or "-" where the moment is not known.
pub(crate) fn age(moment: Option<Moment>, now: Moment) -> String {
    moment.map_or_else(|| "-".to_owned(), |moment| moment.age(now))
}

/// The distance, or "-" where the moment is not known.
pub(crate) fn distance(moment: Option<Moment>, now: Moment) -> String {
    moment.map_or_else(|| "-".to_owned(), |moment| moment.distance(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_unix(seconds).expect("in range")
    }

    #[test]
    fn documents_have_rfc_3339() {
        assert_eq!(serde_json::to_string(&at(1_700_000_000)).expect("plain"), "\"2023-11-14T22:13:20Z\"");
    }

    #[test]
    fn tables_have_ages() {
        assert_eq!(at(100).age(at(112)), "12s");
        assert_eq!(at(112).age(at(100)), "0s");
        assert_eq!(at(4_000).distance(at(400)), "in 1h");
        assert_eq!(at(100).distance(at(112)), "12s ago");
        assert_eq!(age(None, at(1)), "-");
    }

    #[test]
    fn events_have_milliseconds() {
        let moment = Moment::from_unix_milliseconds(1_700_000_000_050).expect("in range");
        assert_eq!(moment.to_millisecond(), "2023-11-14T22:13:20.050Z");
        assert_eq!(serde_json::to_string(&moment).expect("plain"), "\"2023-11-14T22:13:20.05Z\"");
        assert_eq!(at(1_700_000_000).to_millisecond(), "2023-11-14T22:13:20.000Z");
        assert_eq!(Moment::from_unix_milliseconds(i64::MIN), None);
        assert_eq!(Moment::from_unix_milliseconds(0), None);
    }

    #[test]
    fn every_number_on_the_wire_is_accepted() {
        for seconds in [i64::MIN, -62_167_219_201, -1, 0, 1, 253_402_300_799, 253_402_300_800, i64::MAX] {
            if let Some(moment) = Moment::from_unix(seconds) {
                assert!(moment.rfc3339().ends_with('Z'));
                assert!(!moment.distance(at(1)).is_empty());
            }
        }
        assert_eq!(Moment::from_unix(i64::MAX), None);
        assert_eq!(Moment::from_unix(0), None);
    }
}
