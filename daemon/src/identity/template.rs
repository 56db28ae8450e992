//! Paths of SPIFFE IDs with places for facts: `/ns/{k8s:ns}/sa/{k8s:sa}`. Pure.
//!
//! A fact is put in as it is or not at all. What would need an escape, or could be read as more than one path segment, gives no
//! identity: a name that somebody chose must never become another's path.

use std::borrow::Cow;

use isthmus_pki::id::{self, check_segment};

use super::attest::{Facts, PodFacts, Wants};

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// What is around the places is not a path.
    #[error(transparent)]
    Path(#[from] id::Error),
    /// The path of the trust domain itself.
    #[error("it is the trust domain's own ID")]
    Empty,
    /// A brace without its other half.
    #[error("a brace stands alone: a fact is written {{k8s:ns}}")]
    Brace,
    /// No such fact.
    #[error(
        "{{{0}}} is not a fact: use one of unix:uid, unix:gid, unix:user, unix:group, systemd:unit, systemd:user-unit, k8s:ns, k8s:sa, k8s:pod-name, k8s:pod-uid, k8s:container-name, k8s:node-name, k8s:pod-label:KEY"
    )]
    Fact(String),
    /// Only [issuer] and the ceremony give those.
    #[error("it is a node's own, and nodes are no workloads")]
    Node,
    /// A template below `/site`.
    #[error("IDs below /site belong to sites and nodes: a template can't make them")]
    Site,
}

/// Why a caller gets no ID from a template. Says which fact, never its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misfit {
    /// Not known of this caller.
    #[error("{{{0}}} is not known of the caller")]
    Unknown(String),
    /// Not a path segment.
    #[error("{{{0}}} of the caller can't be a path segment")]
    Segment(String),
    /// Below `/site`.
    #[error("the path would lie below /site")]
    Site,
}

/// The path of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Fact(String, Fact),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    Uid,
    Gid,
    User,
    Group,
    Unit,
    UserUnit,
    Pod(PodFact),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PodFact {
    Namespace,
    ServiceAccount,
    Name,
    Uid,
    Container,
    Node,
    Label(String),
}

impl Template {
    /// Parses the path of an entry, with or without places.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let template = Self(parts(text)?);
        let sample = template.shortest();
        let mut segments = sample.strip_prefix('/').ok_or(id::Error::NoSlash)?.split('/');
        if sample == "/" {
            return Err(Error::Empty);
        }
        segments.clone().try_for_each(check_segment)?;
        let is_site = segments.next() == Some("site");
        match (is_site, template.is_fixed()) {
            (true, false) => Err(Error::Site),
            (true, true) if is_node(&sample) => Err(Error::Node),
            _ => Ok(template),
        }
    }

    /// The path for one caller.
    pub(crate) fn path(&self, caller: &Facts) -> Result<String, Misfit> {
        let path = self.fill(|name, fact| {
            let value = fact.of(caller).ok_or_else(|| Misfit::Unknown(name.to_owned()))?;
            check_segment(&value).map_err(|_| Misfit::Segment(name.to_owned()))?;
            Ok(value)
        })?;
        let below_site = path == "/site" || path.starts_with("/site/");
        if below_site && !self.is_fixed() { Err(Misfit::Site) } else { Ok(path) }
    }

    /// What has to be gathered for it.
    pub(crate) fn wants(&self) -> Wants {
        let facts = self.0.iter().filter_map(|part| match part {
            Part::Fact(_, fact) => Some(fact),
            Part::Literal(_) => None,
        });
        facts.fold(Wants::default(), |wants, fact| wants.and(fact.wants()))
    }

    /// The path with the shortest values there could be.
    pub(crate) fn shortest(&self) -> String {
        let Ok(path) = self.fill(|_, _| Ok::<_, std::convert::Infallible>("x".into()));
        path
    }

    fn is_fixed(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    fn fill<'a, E>(
        &'a self,
        value: impl Fn(&'a str, &'a Fact) -> Result<Cow<'a, str>, E>,
    ) -> Result<String, E> {
        self.0.iter().try_fold(String::new(), |mut path, part| {
            match part {
                Part::Literal(text) => path.push_str(text),
                Part::Fact(name, fact) => path.push_str(&value(name, fact)?),
            }
            Ok(path)
        })
    }
}

fn is_node(path: &str) -> bool {
    let rest = path.strip_prefix("/site/").and_then(|rest| rest.split_once("/node/"));
    rest.is_some_and(|(site, name)| !site.contains('/') && !name.contains('/'))
}

fn parts(mut text: &str) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (literal, rest) = text.split_at(text.find(['{', '}']).unwrap_or(text.len()));
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.to_owned()));
        }
        text = rest;
        if !rest.is_empty() {
            let (name, rest) =
                rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).ok_or(Error::Brace)?;
            let fact = Fact::parse(name).ok_or_else(|| Error::Fact(name.escape_debug().to_string()))?;
            parts.push(Part::Fact(name.to_owned(), fact));
            text = rest;
        }
    }
    Ok(parts)
}

impl Fact {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "unix:uid" => Self::Uid,
            "unix:gid" => Self::Gid,
            "unix:user" => Self::User,
            "unix:group" => Self::Group,
            "systemd:unit" => Self::Unit,
            "systemd:user-unit" => Self::UserUnit,
            _ => Self::Pod(PodFact::parse(name.strip_prefix("k8s:")?)?),
        })
    }

    fn of<'a>(&self, caller: &'a Facts) -> Option<Cow<'a, str>> {
        let unit = |of_user| {
            caller.unit.as_ref().filter(|unit| unit.of_user == of_user).map(|unit| unit.name.as_str())
        };
        match self {
            Self::Uid => Some(caller.uid.to_string().into()),
            Self::Gid => Some(caller.gid.to_string().into()),
            Self::User => caller.user.as_deref().map(Cow::from),
            Self::Group => caller.group.as_deref().map(Cow::from),
            Self::Unit => unit(false).map(Cow::from),
            Self::UserUnit => unit(true).map(Cow::from),
            Self::Pod(fact) => fact.of(caller.pod.as_ref()?).map(Cow::from),
        }
    }

    fn wants(&self) -> Wants {
        match self {
            Self::Uid | Self::Gid => Wants::default(),
            Self::User | Self::Group => Wants { names: true, ..Wants::default() },
            Self::Unit | Self::UserUnit => Wants { unit: true, ..Wants::default() },
            Self::Pod(_) => Wants { pod: true, ..Wants::default() },
        }
    }
}

impl PodFact {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "ns" => Self::Namespace,
            "sa" => Self::ServiceAccount,
            "pod-name" => Self::Name,
            "pod-uid" => Self::Uid,
            "container-name" => Self::Container,
            "node-name" => Self::Node,
            _ => Self::Label(name.strip_prefix("pod-label:").filter(|key| !key.is_empty())?.to_owned()),
        })
    }

    fn of<'a>(&self, pod: &'a PodFacts) -> Option<&'a str> {
        match self {
            Self::Namespace => Some(&pod.namespace),
            Self::ServiceAccount => Some(&pod.service_account),
            Self::Name => Some(&pod.name),
            Self::Uid => Some(&pod.uid),
            Self::Container => Some(&pod.container_name),
            Self::Node => Some(&pod.node_name),
            Self::Label(key) => pod.labels.get(key).map(String::as_str),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::identity::attest::cgroup::Unit;

    fn path(template: &str, caller: &Facts) -> Result<String, Misfit> {
        Template::parse(template).unwrap().path(caller)
    }

    fn in_pod(namespace: &str, service_account: &str) -> Facts {
        let pod = PodFacts {
            namespace: namespace.into(),
            service_account: service_account.into(),
            labels: Arc::new([("app/name".to_owned(), "shop".to_owned())].into()),
            ..PodFacts::default()
        };
        Facts { pod: Some(Arc::new(pod)), ..Facts::default() }
    }

    #[test]
    fn facts_are_put_in_as_they_are() {
        let pod = in_pod("payments", "api");
        assert_eq!(path("/ns/{k8s:ns}/sa/{k8s:sa}", &pod).unwrap(), "/ns/payments/sa/api");
        assert_eq!(path("/app-{k8s:pod-label:app/name}.x", &pod).unwrap(), "/app-shop.x");
        assert_eq!(path("/fixed/path", &pod).unwrap(), "/fixed/path");
        let unit = Some(Unit { name: "nginx.service".into(), of_user: false });
        let host = Facts { uid: 7, user: Some("www-data".into()), unit, ..Facts::default() };
        assert_eq!(
            path("/u/{unix:user}/{unix:uid}/{systemd:unit}", &host).unwrap(),
            "/u/www-data/7/nginx.service"
        );
        assert_eq!(path("/{systemd:user-unit}", &host), Err(Misfit::Unknown("systemd:user-unit".into())));
        assert_eq!(path("/ns/{k8s:ns}", &host), Err(Misfit::Unknown("k8s:ns".into())));
        assert_eq!(path("/{k8s:pod-label:none}", &pod), Err(Misfit::Unknown("k8s:pod-label:none".into())));
    }

    #[test]
    fn what_is_no_segment_gives_no_identity() {
        for bad in [
            "", ".", "..", "a/b", "/", "%2e%2e", "a%2fb", "a b", "é", "a\0", "a\n", "a:b", "{k8s:sa}", "a?b",
            "a#b", "user@1",
        ] {
            assert_eq!(
                path("/ns/{k8s:ns}", &in_pod(bad, "x")),
                Err(Misfit::Segment("k8s:ns".into())),
                "{bad:?}"
            );
            // Not even where what is around it would make it a segment.
            assert!(path("/ns/a{k8s:ns}b", &in_pod(bad, "x")).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_template_never_leads_below_site() {
        assert_eq!(path("/{k8s:ns}/aws/node/gw1", &in_pod("site", "x")), Err(Misfit::Site));
        assert_eq!(path("/{k8s:ns}", &in_pod("site", "x")), Err(Misfit::Site));
        assert_eq!(path("/{k8s:ns}{k8s:sa}/x", &in_pod("si", "te")), Err(Misfit::Site));
        assert_eq!(path("/{k8s:ns}s/x", &in_pod("site", "te")).unwrap(), "/sites/x");
        assert_eq!(Template::parse("/site/{k8s:ns}"), Err(Error::Site));
        assert_eq!(Template::parse("/site/a/node/{unix:user}"), Err(Error::Site));
        assert_eq!(Template::parse("/site/a/node/b"), Err(Error::Node));
        assert!(Template::parse("/site/a/workload/b").is_ok());
        assert!(Template::parse("/sites/{k8s:ns}").is_ok());
    }

    #[test]
    fn what_is_no_template_says_why() {
        for (text, error) in [
            ("", Error::Path(id::Error::NoSlash)),
            ("/", Error::Empty),
            ("ns/{k8s:ns}", Error::Path(id::Error::NoSlash)),
            ("{k8s:ns}", Error::Path(id::Error::NoSlash)),
            ("/ns//{k8s:ns}", Error::Path(id::Error::EmptySegment)),
            ("/ns/{k8s:ns}/", Error::Path(id::Error::EmptySegment)),
            ("/ns/../{k8s:ns}", Error::Path(id::Error::DotSegment)),
            ("/ns%/{k8s:ns}", Error::Path(id::Error::PathChar('%'))),
            ("/ns/{k8s:ns", Error::Brace),
            ("/ns/k8s:ns}", Error::Brace),
            ("/ns/{{k8s:ns}}", Error::Fact("{k8s:ns".into())),
            ("/ns/{}", Error::Fact(String::new())),
            ("/ns/{k8s:namespace}", Error::Fact("k8s:namespace".into())),
            ("/ns/{k8s:pod-label:}", Error::Fact("k8s:pod-label:".into())),
        ] {
            assert_eq!(Template::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn templates_say_what_has_to_be_gathered() {
        let wants = |text: &str| Template::parse(text).unwrap().wants();
        assert_eq!(wants("/a/{unix:uid}"), Wants::default());
        assert_eq!(wants("/{unix:user}/{k8s:ns}"), Wants { names: true, pod: true, ..Wants::default() });
        assert_eq!(wants("/{systemd:unit}"), Wants { unit: true, ..Wants::default() });
    }

    proptest! {
        #[test]
        fn any_text_is_a_template_or_refused(text in "\\PC{0,60}") {
            let _ = Template::parse(&text);
        }

        /// Whatever the values, an ID keeps the literal parts where the template has them, and is a valid path.
        #[test]
        fn an_id_stays_inside_its_literal_parts(
            ns in "[a-z./%\\\\ é-]{0,8}|\\.\\.|site|node|a/sa/b",
            sa in "[A-Za-z0-9._/%-]{0,8}|\\.\\.",
            first in prop_oneof![Just("/ns/{k8s:ns}/sa/{k8s:sa}"), Just("/{k8s:ns}/x/{k8s:sa}"), Just("/a-{k8s:ns}-b/{k8s:sa}.c/d")],
        ) {
            if let Ok(path) = path(first, &in_pod(&ns, &sa)) {
                let expected = first.replace("{k8s:ns}", &ns).replace("{k8s:sa}", &sa);
                prop_assert_eq!(&path, &expected);
                prop_assert_eq!(path.split('/').count(), first.split('/').count());
                prop_assert!(path[1..].split('/').all(|segment| check_segment(segment).is_ok()));
                prop_assert!(!path.starts_with("/site/") && check_segment(&ns).is_ok() && check_segment(&sa).is_ok());
                let domain = isthmus_pki::TrustDomain::parse("fabric.example").unwrap();
                prop_assert!(domain.member(&path).is_ok_and(|id| id.node().is_none()));
            }
        }
    }
}
