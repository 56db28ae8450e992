//! One stream of `StreamSecrets`, by the rules of xDS, state of the world.
//!
//! ```text
//!              first request, or other names than before
//!   (silent) ------------------------------------------------> answer at once, new version, new nonce
//!                                                                  |
//!        +---------------------------------------------------------+
//!        v
//!   (sent N) -- request with a nonce other than N ---------------> ignored: it answers something older
//!        |  --- nonce N, no error, version as sent --------------> accepted: wait for a change
//!        |  --- nonce N, error or another version ---------------> refused: noted, and the same is not sent again
//!        |  --- resources changed -------------------------------> answer, new version, new nonce
//! ```

use isthmus_proto::sds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use prost_types::Any;
use sha2::{Digest as _, Sha256};

/// The only type of resource here.
pub const TYPE_URL: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Most names in a request, and most bytes of one: a SPIFFE ID has no more.
const MAX_NAMES: usize = 512;
const MAX_NAME: usize = 2048;
/// Most characters of what a client says about itself or its troubles.
const MAX_TEXT: usize = 256;

/// A request that can't be answered; the stream ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Of another type.
    #[error("this service has no resources of the type {0:?}, only {TYPE_URL}")]
    Type(String),
    /// Too much of it.
    #[error("a request has at most {MAX_NAMES} names of at most {MAX_NAME} bytes each")]
    Names,
}

/// What a request was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first, or one for other names: it is to be answered now.
    Subscribed,
    /// The client has what was sent.
    Accepted,
    /// The client could not use what was sent, and says why. The same is not sent again.
    Refused(String),
    /// It answers something older than what was sent last; nothing came of it.
    Stale,
}

/// The server's side of one stream.
#[derive(Debug, Default)]
pub struct Session {
    /// What the client wants, once it has said so.
    names: Option<Vec<String>>,
    /// Who it says it is. It need not repeat that.
    node: String,
    version: u64,
    sent: Option<Sent>,
    /// The names are not those of the last answer.
    owing: bool,
}

#[derive(Debug)]
struct Sent {
    nonce: String,
    /// SHA-256 over the resources: they hold keys, and are not kept for comparing.
    digest: [u8; 32],
}

impl Session {
    /// Takes in a request.
    pub fn request(&mut self, request: DiscoveryRequest) -> Result<Step, Malformed> {
        let DiscoveryRequest { version_info, node, resource_names, type_url, response_nonce, error_detail } =
            request;
        check(&type_url, &resource_names)?;
        if let Some(node) = node.filter(|node| !node.id.is_empty()) {
            self.node = shortened(&node.id);
        }
        let Some(sent) = &self.sent else {
            // Of a stream that went before, so that versions go on rising for this client.
            self.version = self.version.max(version_info.parse().unwrap_or(0));
            return Ok(self.subscribe(resource_names));
        };
        if sent.nonce != response_nonce {
            return Ok(Step::Stale);
        }
        if self.names.as_ref() != Some(&resource_names) {
            return Ok(self.subscribe(resource_names));
        }
        Ok(match error_detail {
            Some(error) => Step::Refused(shortened(&error.message)),
            None if version_info != self.version.to_string() => Step::Refused("no reason given".into()),
            None => Step::Accepted,
        })
    }

    fn subscribe(&mut self, names: Vec<String>) -> Step {
        self.names = Some(names);
        self.owing = true;
        Step::Subscribed
    }

    /// The names that the client wants; `None`: it has not said so yet, and nothing can be sent.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// What the client calls itself, shortened and fit for a log; empty: it has not said.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The answer that is due if these are the resources for the [names](Self::names) now; `None`: the client was sent just that.
    /// `nonce` must be another one each time. Without resources there is no answer: nothing is no secret.
    pub fn answer(&mut self, resources: Vec<Any>, nonce: u128) -> Option<DiscoveryResponse> {
        let digest = digest(&resources);
        let same = self.sent.as_ref().is_some_and(|sent| sent.digest == digest);
        if self.names.is_none() || resources.is_empty() || (same && !self.owing) {
            return None;
        }
        self.owing = false;
        self.version = self.version.saturating_add(1);
        let nonce = format!("{nonce:032x}");
        self.sent = Some(Sent { nonce: nonce.clone(), digest });
        Some(DiscoveryResponse {
            version_info: self.version.to_string(),
            resources,
            type_url: TYPE_URL.into(),
            nonce,
        })
    }
}

fn check(type_url: &str, names: &[String]) -> Result<(), Malformed> {
    if !type_url.is_empty() && type_url != TYPE_URL {
        return Err(Malformed::Type(shortened(type_url)));
    }
    let bounded = names.len() <= MAX_NAMES && names.iter().all(|name| name.len() <= MAX_NAME);
    if bounded { Ok(()) } else { Err(Malformed::Names) }
}

fn digest(resources: &[Any]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for resource in resources {
        // Lengths first, so that no two lists run together to the same bytes.
        hash.update((resource.value.len() as u64).to_be_bytes());
        hash.update(&resource.value);
    }
    hash.finalize().into()
}

/// Of a text that a stranger wrote.
fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use isthmus_proto::sds::{envoy::config::core::v3::Node, google::rpc::Status};
    use proptest::prelude::*;

    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    fn request(list: &[&str], version: &str, nonce: &str) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: version.into(),
            resource_names: names(list),
            type_url: TYPE_URL.into(),
            response_nonce: nonce.into(),
            ..Default::default()
        }
    }

    fn resources(content: &[u8]) -> Vec<Any> {
        vec![Any { type_url: TYPE_URL.into(), value: content.to_vec() }]
    }

    /// A session that has sent version 1 for the name "a".
    fn after_first() -> (Session, DiscoveryResponse) {
        let mut session = Session::default();
        assert_eq!(session.request(request(&["a"], "", "")), Ok(Step::Subscribed));
        let first = session.answer(resources(b"1"), 7).unwrap();
        (session, first)
    }

    #[test]
    fn nothing_is_sent_before_it_is_asked_for_and_the_first_request_is_answered() {
        let mut session = Session::default();
        assert_eq!(session.answer(resources(b"1"), 1), None);
        let (_, first) = after_first();
        assert_eq!((first.version_info.as_str(), first.nonce.len()), ("1", 32));
        assert_eq!(first.resources, resources(b"1"));
    }

    /// What the client sends, what that is, and whether the same resources are due once more after it.
    #[test]
    fn requests_after_the_first_answer() {
        let refusal = Some(Status { code: 13, message: "bad\nkey".into() });
        let nack = |version: &str| DiscoveryRequest {
            error_detail: refusal.clone(),
            ..request(&["a"], version, "")
        };
        for (what, sent, fresh, step, again) in [
            ("accepted", request(&["a"], "1", ""), true, Step::Accepted, false),
            ("refused", nack(""), true, Step::Refused("bad\\nkey".into()), false),
            ("refused, claims the version", nack("1"), true, Step::Refused("bad\\nkey".into()), false),
            (
                "another version",
                request(&["a"], "0", ""),
                true,
                Step::Refused("no reason given".into()),
                false,
            ),
            ("stale", request(&["a"], "1", ""), false, Step::Stale, false),
            ("stale with other names", request(&["b"], "1", ""), false, Step::Stale, false),
            ("stale refusal", nack("0"), false, Step::Stale, false),
            ("other names", request(&["b"], "1", ""), true, Step::Subscribed, true),
            ("more names", request(&["a", "b"], "1", ""), true, Step::Subscribed, true),
            ("all names", request(&[], "1", ""), true, Step::Subscribed, true),
        ] {
            let (mut session, first) = after_first();
            let nonce = if fresh { first.nonce.clone() } else { "0".repeat(32) };
            assert_eq!(
                session.request(DiscoveryRequest { response_nonce: nonce, ..sent }),
                Ok(step),
                "{what}"
            );
            assert_eq!(session.answer(resources(b"1"), 8).is_some(), again, "{what}");
        }
    }

    #[test]
    fn a_change_is_sent_once_with_a_higher_version_and_a_fresh_nonce() {
        let (mut session, first) = after_first();
        let second = session.answer(resources(b"2"), 8).unwrap();
        assert_eq!(second.version_info, "2");
        assert_ne!(second.nonce, first.nonce);
        assert_eq!(session.answer(resources(b"2"), 9), None);
        // The answer to the first comes late: it says nothing about the second.
        assert_eq!(session.request(request(&["a"], "1", &first.nonce)), Ok(Step::Stale));
        assert_eq!(session.request(request(&["a"], "2", &second.nonce)), Ok(Step::Accepted));
    }

    #[test]
    fn what_was_refused_is_not_sent_again_until_it_is_another() {
        let (mut session, first) = after_first();
        for _ in 0..3 {
            session.request(request(&["a"], "0", &first.nonce)).unwrap();
            assert_eq!(session.answer(resources(b"1"), 8), None);
        }
        assert_eq!(session.answer(resources(b"2"), 9).unwrap().version_info, "2");
    }

    #[test]
    fn nothing_is_no_secret() {
        let (mut session, _) = after_first();
        assert_eq!(session.answer(vec![], 8), None);
    }

    #[test]
    fn a_client_that_comes_back_sees_versions_go_on_rising() {
        let mut session = Session::default();
        session.request(request(&["a"], "41", "")).unwrap();
        assert_eq!(session.answer(resources(b"1"), 1).unwrap().version_info, "42");
    }

    #[test]
    fn the_client_s_name_is_carried_forward_and_fit_for_a_log() {
        let (mut session, first) = after_first();
        assert_eq!(session.node(), "");
        let node = Some(Node { id: format!("n\n{}", "x".repeat(1000)), ..Default::default() });
        session.request(DiscoveryRequest { node, ..request(&["a"], "1", &first.nonce) }).unwrap();
        session.request(request(&["a"], "1", &first.nonce)).unwrap();
        assert!(session.node().starts_with("n\\nx") && session.node().len() < 300);
    }

    #[test]
    fn a_malformed_request_is_refused() {
        let other = DiscoveryRequest { type_url: "type.googleapis.com/other".into(), ..request(&[], "", "") };
        assert!(matches!(Session::default().request(other), Err(Malformed::Type(_))));
        let long =
            DiscoveryRequest { resource_names: vec!["x".repeat(MAX_NAME + 1)], ..request(&[], "", "") };
        assert_eq!(Session::default().request(long), Err(Malformed::Names));
        let many =
            DiscoveryRequest { resource_names: vec![String::new(); MAX_NAMES + 1], ..request(&[], "", "") };
        assert_eq!(Session::default().request(many), Err(Malformed::Names));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Request { names: u8, version: u8, fresh: bool, refuse: bool },
        Resources(u8),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0u8..3, 0u8..4, any::<bool>(), any::<bool>())
                .prop_map(|(names, version, fresh, refuse)| Event::Request { names, version, fresh, refuse }),
            (0u8..3).prop_map(Event::Resources),
        ]
    }

    proptest! {
        /// Whatever a client does: versions rise, and nothing is sent twice in a row but for other names.
        #[test]
        fn never_loops(events in proptest::collection::vec(event(), 0..60)) {
            let mut session = Session::default();
            let mut last: Option<DiscoveryResponse> = None;
            let (mut content, mut subscribed) = (0u8, false);
            for (nonce, event) in events.into_iter().enumerate() {
                match event {
                    Event::Resources(other) => content = other,
                    Event::Request { names, version, fresh, refuse } => {
                        let nonce = last.as_ref().filter(|_| fresh).map(|l| l.nonce.clone()).unwrap_or_default();
                        let error_detail = refuse.then(Status::default);
                        let request = DiscoveryRequest { error_detail, ..request(&[["a", "b", "c"][usize::from(names)]], &version.to_string(), &nonce) };
                        subscribed |= session.request(request).unwrap() == Step::Subscribed;
                    }
                }
                if let Some(answer) = session.answer(resources(&[content]), nonce as u128) {
                    if let Some(last) = &last {
                        prop_assert!(answer.version_info.parse::<u64>().unwrap() > last.version_info.parse().unwrap());
                        prop_assert_ne!(&answer.nonce, &last.nonce);
                        prop_assert!(subscribed || answer.resources != last.resources);
                    }
                    prop_assert!(session.names().is_some());
                    subscribed = false;
                    last = Some(answer);
                }
            }
        }
    }
}
