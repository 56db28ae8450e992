//! What a CA would issue, from its certificate alone: for a rehearsal without the key, and for issuing itself.

use time::{Duration, OffsetDateTime};

use super::{Error, trust_domain, whole_second};
use crate::{
    facts::Facts,
    profile::{self, Profile},
};

/// The dates of a certificate before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Last valid second.
    pub not_after: OffsetDateTime,
    /// By how much its lifetime is cut so that it does not outlive the CA.
    pub clamped: Option<Duration>,
    /// The CA's own last valid second.
    pub(super) latest: OffsetDateTime,
}

impl Outlook {
    /// Fails for every reason for which issuing would, but those of the key.
    pub fn new(ca: &Facts, profile: &Profile, now: OffsetDateTime) -> Result<Self, Error> {
        may_issue(ca, profile)?;
        if let Some(reason) = ca.out_of_date(now) {
            return Err(Error::OutOfDate(reason));
        }
        let latest =
            OffsetDateTime::from_unix_timestamp(ca.not_after).map_err(|_| profile::Error::Lifetime)?;
        let end = whole_second(now).checked_add(profile.lifetime()).ok_or(profile::Error::Lifetime)?;
        let not_after = end.min(latest);
        let cut = end - not_after;
        Ok(Self { not_after, clamped: cut.is_positive().then_some(cut), latest })
    }
}

fn may_issue(ca: &Facts, profile: &Profile) -> Result<(), Error> {
    let last = ca.basic_constraints.is_some_and(|b| b.path_len == Some(0));
    let trust_domain = trust_domain(ca)?;
    match profile {
        Profile::Root { .. } => Err(Error::Kind("CA")),
        Profile::SiteCa { .. } if last => Err(Error::Kind("site CA")),
        Profile::Svid { id, .. } if *id.trust_domain() != trust_domain => {
            Err(Error::Foreign { id: id.clone(), trust_domain })
        }
        Profile::Svid { .. } if ca.self_issued => Err(Error::Kind("root")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fabric, NOW};

    #[test]
    fn says_what_will_be() {
        let root = &Fabric::shared().root;
        let profile = |days| Profile::SiteCa { site: "s".into(), lifetime: Duration::days(days) };
        let outlook = |days| Outlook::new(root.facts(), &profile(days), NOW).unwrap();
        assert_eq!((outlook(90).not_after, outlook(90).clamped), (NOW + Duration::days(90), None));
        let long = outlook(4000);
        assert_eq!(long.not_after.unix_timestamp(), root.facts().not_after);
        assert_eq!(long.clamped, Some(Duration::days(4000 - 3650)));
        let late = Outlook::new(root.facts(), &profile(1), NOW + Duration::days(3651));
        assert!(matches!(late, Err(Error::OutOfDate(_))));
    }
}
