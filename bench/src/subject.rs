//! The BGP speaker that is measured, whoever made it.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, anyhow};
use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    node::Node,
    router::{Kind, Router, Scope},
};

use crate::{
    contender::{Contender, Name},
    process::{Resident, resident},
};

/// How long a speaker may take to start.
const START: Duration = Duration::from_secs(20);

/// The speaker that is measured; its processes end with the value.
pub(crate) enum Subject {
    /// `isthmusd`.
    Ours(Box<Node>),
    /// A rival.
    Theirs(Router),
}

impl Subject {
    /// Starts it with this configuration, in its own language.
    ///
    /// # Errors
    /// When it does not start: why, and its log.
    pub(crate) fn start(
        contender: &Contender,
        scope: Scope,
        text: &str,
        netns: &Netns,
        dir: &Path,
    ) -> Result<Self> {
        // What an earlier one left there would be read by this one.
        let _ = fs::remove_dir_all(dir);
        Ok(match kind(contender.name) {
            None => Self::Ours(Box::new(ours(contender, text, netns, dir)?)),
            Some(kind) => Self::Theirs(Router::start_scoped(kind, scope, netns, dir, text)?),
        })
    }

    /// Ends the process that speaks BGP without a goodbye.
    ///
    /// # Errors
    /// When it does not run.
    pub(crate) fn kill(&mut self) -> Result<()> {
        match self {
            Self::Ours(node) => node.kill(),
            Self::Theirs(router) => router.kill(),
        }
    }

    /// Starts it again as it was.
    ///
    /// # Errors
    /// As [`Subject::start`].
    pub(crate) fn restart(&mut self) -> Result<()> {
        match self {
            Self::Ours(node) => node.restart(),
            Self::Theirs(router) => router.restart(),
        }
    }

    /// The resident sets of all its processes, in octets.
    ///
    /// # Errors
    /// When one is gone.
    pub(crate) fn memory(&self) -> Result<f64> {
        let pids = match self {
            Self::Ours(node) => node.pid().into_iter().collect(),
            Self::Theirs(router) => router.pids(),
        };
        let sets = pids.into_iter().map(|pid| resident(pid, Resident::Now));
        Ok(sets.sum::<Result<f64>>()? * f64::from(1 << 20))
    }

    /// `error` with the end of the speaker's log.
    pub(crate) fn blame(&self, error: &anyhow::Error) -> anyhow::Error {
        let log = match self {
            Self::Ours(node) => node.log_tail(),
            Self::Theirs(router) => router.log(),
        };
        anyhow!("{error:#}\n--- the speaker's log:\n{log}")
    }
}

/// `None`: ours.
fn kind(name: Name) -> Option<Kind> {
    match name {
        Name::Bird => Some(Kind::Bird),
        Name::Frr => Some(Kind::Frr),
        Name::Gobgp => Some(Kind::Gobgp),
        _ => None,
    }
}

fn ours(contender: &Contender, text: &str, netns: &Netns, dir: &Path) -> Result<Node> {
    let beside = |name: &str| contender.path.with_file_name(name);
    let (isthmusctl, isthmus_ca) = (beside("isthmusctl"), beside("isthmus-ca"));
    let bins = Bins { isthmusd: contender.path.clone(), isthmusctl, isthmus_ca };
    let mut node = Node::new("speaker", netns, dir, &bins)?;
    let (state, socket) = (node.state_dir(), node.socket());
    node.write_config(&format!(
        "[node]\nname = \"speaker\"\nstate_dir = {state:?}\n[api]\nsocket = {socket:?}\n{text}"
    ))?;
    node.restart()?;
    node.wait_until("an answer", START, |node| node.status().map(drop)).context("starting isthmusd")?;
    Ok(node)
}
