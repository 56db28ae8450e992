//! A request held against the plan. What a request says of itself is not believed, but what contradicts the plan was mixed up or forged.

use super::{Plan, Site};
use crate::{
    csr::Request,
    id::{self, SpiffeId, TrustDomain},
    key::Curve,
    profile::SITE_CA_NAME,
};

/// Why a request is not signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a site CA's request.
    #[error(
        "this is not the request of a site's CA: it calls itself {0:?}, where it must say \"CN={SITE_CA_NAME}\", the site's name and \
         nothing else; make it with `isthmus-ca site csr`"
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
    #[error(
        "the request is for {says:?}, another trust domain than {wanted}: take the request that was made for this one"
    )]
    OtherDomain {
        /// What it asks for.
        says: String,
        /// The plan's, or the root's.
        wanted: TrustDomain,
    },
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
        let says = claimed_site(request, &self.trust_domain, site)?;
        let planned = self.site(says).ok_or_else(|| Refusal::Unknown(says.to_owned()))?;
        let has = request.public_key.curve();
        if has == planned.curve { Ok(planned) } else { Err(Refusal::Curve { wanted: planned.curve, has }) }
    }
}

/// The site that a request names, if it is exactly what `isthmus-ca site csr` makes for one of this trust domain. People at both ends
/// look at the request: what else it could say would be for their eyes alone.
pub fn claimed_site<'a>(
    request: &'a Request,
    trust_domain: &TrustDomain,
    wanted: Option<&str>,
) -> Result<&'a str, Refusal> {
    let subject = &request.subject;
    let name = subject.strip_prefix("CN=").and_then(|name| name.strip_prefix(SITE_CA_NAME));
    let says = name.filter(|name| id::is_name(name)).ok_or_else(|| Refusal::NotASite(subject.clone()))?;
    if let Some(wanted) = wanted.filter(|wanted| *wanted != says) {
        return Err(Refusal::OtherSite { says: says.to_owned(), wanted: wanted.to_owned() });
    }
    let foreign = |uri: &&String| SpiffeId::parse(uri).map_or(true, |id| id != trust_domain.id());
    match request.uris.iter().find(foreign) {
        Some(uri) => Err(Refusal::OtherDomain { says: uri.clone(), wanted: trust_domain.clone() }),
        None => Ok(says),
    }
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
        for bad in [
            "gw1".to_owned(),
            site_ca_name("a, O=x"),
            site_ca_name("a\nok: as planned"),
            site_ca_name("A"),
            site_ca_name(""),
            format!(" {}", site_ca_name("a")),
        ] {
            assert_eq!(refuse(&bad, "td", Curve::P256), Refusal::NotASite(format!("CN={bad}")));
        }
        let (says, wanted) = ("spiffe://x".into(), domain("td"));
        assert_eq!(refuse(&site_ca_name("a"), "x", Curve::P256), Refusal::OtherDomain { says, wanted });
        let (wanted, has) = (Curve::P256, Curve::P384);
        assert_eq!(refuse(&site_ca_name("a"), "td", Curve::P384), Refusal::Curve { wanted, has });
    }
}
