//! Selectors: what an entry says about who may have its identity.

use toml::Spanned;

use crate::config::Checker;

/// What can be known of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `unix:uid:N`
    Uid(u32),
    /// `unix:gid:N`
    Gid(u32),
}

pub(super) fn check_selector(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Selector> {
    let number = |text: &str| text.parse::<u32>().ok();
    let selector = match raw.get_ref().split(':').collect::<Vec<_>>()[..] {
        ["unix", "uid", id] => number(id).map(Selector::Uid),
        ["unix", "gid", id] => number(id).map(Selector::Gid),
        _ => None,
    };
    if selector.is_none() {
        let message = format!("\"{}\" is not a selector", raw.get_ref().escape_debug());
        c.problem(raw.span(), message, "use \"unix:uid:NUMBER\" or \"unix:gid:NUMBER\"");
    }
    selector
}
