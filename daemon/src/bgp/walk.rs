//! A whole table, some prefixes at a time: the BGP task does its work in between.

use std::{sync::Arc, vec};

use ipnet::IpNet;
use isthmus_bgp::{
    Speaker,
    rib::{Neighbor, Path},
    speaker::{Entry, Question},
};

use super::{Handle, Unanswered, ask::find};

/// Prefixes of one question. The BGP task answers it in less than a millisecond, unless prefixes have very many paths.
const PAGE: usize = 256;

/// A walk over the prefixes that a table had when it began, in order: IPv4 first, then by address, then by length.
pub struct Walk {
    handle: Handle,
    question: Question,
    prefixes: vec::IntoIter<IpNet>,
}

impl Handle {
    /// Begins a walk over what the question is about, of the neighbor of this name or address if one is given.
    ///
    /// # Errors
    /// There is no such neighbor, or BGP is stopped.
    pub async fn walk(&self, question: Question, neighbor: Option<String>) -> Result<Walk, Unanswered> {
        let (question, prefixes) = self
            .ask(move |speaker| {
                let peer = neighbor.map(|name| find(speaker, &name)).transpose()?;
                let question = Question { peer, ..question };
                Ok((question, speaker.table_prefixes(&question)))
            })
            .await??;
        Ok(Walk { handle: self.clone(), question, prefixes: sorted(prefixes).await?.into_iter() })
    }

    /// The neighbors that paths in the table came from.
    ///
    /// # Errors
    /// BGP is stopped.
    pub async fn sources(&self) -> Result<Vec<Arc<Neighbor>>, Unanswered> {
        self.ask(|speaker| speaker.sources()).await
    }
}

impl Walk {
    /// How many prefixes are still to come.
    pub fn left(&self) -> usize {
        self.prefixes.len()
    }

    /// What there is to the next prefixes; `None`: these were all.
    ///
    /// # Errors
    /// BGP is stopped.
    pub async fn entries(&mut self) -> Result<Option<Vec<Entry>>, Unanswered> {
        let question = self.question;
        self.next(move |speaker, prefixes| speaker.table_entries(&question, prefixes)).await
    }

    /// The same as the table has it, whatever the question was: with the paths that are not used, and the attributes as they came.
    ///
    /// # Errors
    /// BGP is stopped.
    pub async fn paths(&mut self) -> Result<Option<Vec<(IpNet, Vec<Path>)>>, Unanswered> {
        self.next(|speaker, prefixes| speaker.table_paths(prefixes)).await
    }

    async fn next<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&Speaker, &[IpNet]) -> T + Send + 'static,
    ) -> Result<Option<T>, Unanswered> {
        let page: Vec<_> = self.prefixes.by_ref().take(PAGE).collect();
        if page.is_empty() {
            return Ok(None);
        }
        self.handle.ask(move |speaker| look(speaker, &page)).await.map(Some)
    }
}

/// In order and each once, made so on a thread that may take its time.
async fn sorted(mut prefixes: Vec<IpNet>) -> Result<Vec<IpNet>, Unanswered> {
    let sorting = tokio::task::spawn_blocking(move || {
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes
    });
    // Sorting does not fail: the runtime is going.
    sorting.await.map_err(|_| Unanswered::Stopped)
}
