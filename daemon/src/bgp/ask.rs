//! Questions and orders that the BGP task answers between two of its turns.

use std::{net::IpAddr, time::Instant};

use isthmus_bgp::{
    PeerId, Reset, Speaker,
    speaker::{Entry, PeerDetail},
};
use tokio::sync::oneshot;

use super::{Handle, handle::Command};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// BGP was stopped.
    #[error("BGP is stopped")]
    Stopped,
    /// Nobody has that name or address.
    #[error("no BGP neighbor has the name or address {name}; the neighbors are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Names that there are.
        known: String,
    },
}

/// A task done on the speaker, whose result goes wherever the closure sends it.
pub(super) type Errand = Box<dyn FnOnce(&mut Speaker) + Send>;

impl Handle {
    /// One neighbor in detail, by its name or address.
    ///
    /// # Errors
    /// There is no such neighbor, or BGP is stopped.
    pub async fn detail(&self, name: String) -> Result<PeerDetail, Unanswered> {
        self.ask(move |speaker| {
            let peer = find(speaker, &name)?;
            speaker.detail(peer).ok_or(Unanswered::Stopped)
        })
        .await?
    }

    /// Every prefix that covers an address, longest first.
    ///
    /// # Errors
    /// BGP is stopped.
    pub async fn explain(&self, address: IpAddr) -> Result<Vec<Entry>, Unanswered> {
        self.ask(move |speaker| speaker.covering(address)).await
    }

    /// Names of the neighbors that an order is about: the one of this name or address, or all.
    ///
    /// # Errors
    /// As [`Handle::detail`].
    pub async fn find(&self, name: Option<String>) -> Result<Vec<String>, Unanswered> {
        self.ask(move |speaker| {
            let of = |id| speaker.peer_name(id).map(|name| name.to_string());
            match name {
                Some(name) => find(speaker, &name).map(|id| of(id).into_iter().collect()),
                None => Ok(speaker.status().iter().map(|status| status.name.to_string()).collect()),
            }
        })
        .await?
    }

    /// Resets the sessions of these names; those that have gone meanwhile are left out.
    ///
    /// # Errors
    /// BGP is stopped.
    pub async fn reset(&self, names: Vec<String>, resets: Vec<Reset>) -> Result<(), Unanswered> {
        self.ask(move |speaker| {
            let now = Instant::now();
            let each = names.iter().flat_map(|name| resets.iter().map(move |reset| (name, *reset)));
            each.for_each(|(name, reset)| {
                speaker.reset(name, reset, now);
            });
        })
        .await
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Speaker) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let (answer, answered) = oneshot::channel();
        // Whoever asked may have gone; that is their choice.
        let errand: Errand = Box::new(move |speaker| drop(answer.send(question(speaker))));
        self.commands.send(Command::Errand(errand)).await.map_err(|_| Unanswered::Stopped)?;
        answered.await.map_err(|_| Unanswered::Stopped)
    }
}

pub(super) fn find(speaker: &Speaker, name: &str) -> Result<PeerId, Unanswered> {
    speaker.find_peer(name).ok_or_else(|| {
        let known: Vec<_> = speaker.status().iter().map(|status| status.name.to_string()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        Unanswered::Unknown { name: name.into(), known }
    })
}
