//! A request held against the plan. What a request says of itself is not believed, but what contradicts the plan was mixed up or forged.

use super::{Plan, Site};
use crate::{csr::Request, id::SpiffeId, key::Curve, profile::SITE_CA_NAME};

/// Why a request is not signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a site CA's request.
    #[error(
        "this is not the request of a site's CA: it calls itself {0:?}; make it with `isthmus-ca site csr`"
    )]
    NotASite(String),
    /// A site that the plan does not have.
    #[error("site {0:?} is not in the plan")]
    Unknown(String),
    /// Another site's.
    #[error("this is the request of site {says:?}, not of site {wanted:?}")]
    OtherSite {
        /// What it calls itself.
        says: String,
        /// What it should be.
        wanted: String,
    },
    /// Another fabric's.
    #[error("the request is for {0:?}, the plan for another trust domain")]
    OtherDomain(String),
    /// Another kind of key.
    #[error("the plan wants a {wanted:?} key for this site, the request has a {has:?} key")]
    Curve {
        /// The plan's.
        wanted: Curve,
        /// The request's.
        has: Curve,
    },
}

impl Plan {
    /// The site of the plan that the request is for. `site` is who brought it, if that is known.
    pub fn review(&self, request: &Request, site: Option<&str>) -> Result<&Site, Refusal> {
        let says =
            claimed_site(&request.subject).ok_or_else(|| Refusal::NotASite(request.subject.clone()))?;
        if let Some(wanted) = site.filter(|wanted| *wanted != says) {
            return Err(Refusal::OtherSite { says: says.to_owned(), wanted: wanted.to_owned() });
        }
        let planned = self.site(says).ok_or_else(|| Refusal::Unknown(says.to_owned()))?;
        let foreign = |uri: &&String| SpiffeId::parse(uri).map_or(true, |id| id != self.trust_domain.id());
        if let Some(uri) = request.uris.iter().find(foreign) {
            return Err(Refusal::OtherDomain(uri.clone()));
        }
        let has = request.public_key.curve();
        if has == planned.curve { Ok(planned) } else { Err(Refusal::Curve { wanted: planned.curve, has }) }
    }
}

/// The site that a request's subject names.
pub fn claimed_site(subject: &str) -> Option<&str> {
    subject.split(", ").find_map(|part| part.strip_prefix("CN=")?.strip_prefix(SITE_CA_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{csr, key::Key, profile::site_ca_name, testing::domain};

    fn request(name: &str, trust_domain: &str, curve: Curve) -> Request {
        let pem = csr::create(&Key::generate(curve).unwrap(), name, &domain(trust_domain).id()).unwrap();
        csr::parse(pem.as_bytes()).unwrap()
    }

    #[test]
    fn only_what_is_planned_passes() {
        let plan =
            Plan::parse(b"trust_domain = \"td\"\n[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"").unwrap();
        let review = |request: &Request, site| plan.review(request, site).map(|site| site.name.as_str());
        let sound = request(&site_ca_name("a"), "td", Curve::P256);
        assert_eq!((review(&sound, None), review(&sound, Some("a"))), (Ok("a"), Ok("a")));
        assert!(matches!(review(&sound, Some("b")), Err(Refusal::OtherSite { .. })));
        let refuse = |name: &str, domain, curve| review(&request(name, domain, curve), None).unwrap_err();
        assert_eq!(refuse(&site_ca_name("c"), "td", Curve::P256), Refusal::Unknown("c".into()));
        assert_eq!(refuse("gw1", "td", Curve::P256), Refusal::NotASite("CN=gw1".into()));
        assert_eq!(refuse(&site_ca_name("a"), "x", Curve::P256), Refusal::OtherDomain("spiffe://x".into()));
        let (wanted, has) = (Curve::P256, Curve::P384);
        assert_eq!(refuse(&site_ca_name("a"), "td", Curve::P384), Refusal::Curve { wanted, has });
    }
}
