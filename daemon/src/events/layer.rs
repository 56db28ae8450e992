//! From log lines to events.

use std::time::SystemTime;

use tracing::{Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::filter_fn, layer::Context, registry::LookupSpan};

use super::{Event, Journal, Level};

/// Keeps in `journal` what our own code logs at INFO and above. It has a filter of its own: other layers' filters don't concern it.
pub fn layer<S>(journal: Journal) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let kept = filter_fn(|metadata| {
        metadata.is_event()
            && *metadata.level() <= tracing::Level::INFO
            && subsystem(metadata.target()).is_some()
    });
    Keeper(journal).with_filter(kept.with_max_level_hint(LevelFilter::INFO))
}

struct Keeper(Journal);

impl<S: Subscriber> Layer<S> for Keeper {
    fn on_event(&self, said: &tracing::Event<'_>, _: Context<'_, S>) {
        let metadata = said.metadata();
        let Some(subsystem) = subsystem(metadata.target()) else { return };
        let mut event = Event::new(SystemTime::now(), level(metadata), subsystem);
        said.record(&mut event);
        self.0.keep(event);
    }
}

/// First module below the daemon's crate, or the name of another crate of ours; `None`: not our code.
fn subsystem(target: &str) -> Option<&str> {
    let mut path = target.split("::");
    match path.next()? {
        "isthmusd" => Some(path.next().unwrap_or("isthmusd")),
        krate => krate.strip_prefix("isthmus_"),
    }
}

fn level(metadata: &Metadata<'_>) -> Level {
    match *metadata.level() {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warning,
        _ => Level::Info,
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _};

    use super::*;
    use crate::events::{Field, Query};

    /// The journal of what `work` logs, under a filter of the log that lets nothing through.
    fn journal_of(work: impl FnOnce()) -> Vec<Event> {
        let journal = Journal::new();
        let silent = tracing_subscriber::fmt::layer().with_filter(EnvFilter::new("off"));
        let subscriber = tracing_subscriber::registry().with(silent).with(layer(journal.clone()));
        tracing::subscriber::with_default(subscriber, work);
        journal.page(&Query::default()).events.into_iter().map(|(_, event)| (*event).clone()).collect()
    }

    #[test]
    fn an_event_has_the_words_and_the_fields_of_the_log_line() {
        let events = journal_of(|| {
            let (neighbor, reason) = ("azure-gw1", "hold timer expired");
            tracing::warn!(target: "isthmusd::bgp::driver", neighbor, %reason, prefixes = 7, "BGP session");
        });
        let field = |name, value: &str| Field { name, value: value.into() };
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!(
            (event.level, event.subsystem, event.message.as_str()),
            (Level::Warning, "bgp", "BGP session")
        );
        let expected =
            [field("neighbor", "azure-gw1"), field("reason", "hold timer expired"), field("prefixes", "7")];
        assert_eq!(event.fields, expected);
    }

    #[test]
    fn details_and_other_peoples_code_are_not_kept() {
        let events = journal_of(|| {
            tracing::debug!(target: "isthmusd::bgp", "a detail");
            tracing::error!(target: "hyper::server", "not ours");
            tracing::info!(target: "isthmusdx::bgp", "not ours either");
            tracing::error!(target: "isthmusd::fib", "ours");
        });
        let said: Vec<_> = events.iter().map(|event| (event.level, event.message.as_str())).collect();
        assert_eq!(said, [(Level::Error, "ours")]);
    }

    #[test]
    fn a_target_names_its_subsystem() {
        for (target, subsystem) in [
            ("isthmusd::bgp::driver", Some("bgp")),
            ("isthmusd::app", Some("app")),
            ("isthmusd", Some("isthmusd")),
            ("isthmus_tunnel::peer", Some("tunnel")),
            ("tokio::runtime", None),
            ("", None),
        ] {
            assert_eq!(super::subsystem(target), subsystem, "{target}");
        }
    }
}
