//! BGP between `isthmusd` and the speakers that everybody runs: BIRD, FRR and GoBGP.
//!
//! ```text
//! theirs ── ours: isthmusd ── third: another AS, the same program as theirs
//! ```
//! A case is a function of a [`Rig`] in one of the modules, and a line of [`cases`] with the programs that have the feature.
//! `tests/interop/bird.rs` has what goes through a tunnel.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "speakers/config.rs"]
mod config;
#[path = "speakers/exchange.rs"]
mod exchange;
#[path = "speakers/limits.rs"]
mod limits;
#[path = "speakers/next_hops.rs"]
mod next_hops;
#[path = "speakers/parting.rs"]
mod parting;
#[path = "speakers/policies.rs"]
mod policies;
#[path = "speakers/protection.rs"]
mod protection;
#[path = "speakers/reflection.rs"]
mod reflection;
#[path = "speakers/refresh.rs"]
mod refresh;
#[path = "speakers/restart.rs"]
mod restart;
#[path = "speakers/rig.rs"]
mod rig;
#[path = "speakers/roles.rs"]
mod roles;
#[path = "speakers/several_paths.rs"]
mod several_paths;
#[path = "speakers/watching.rs"]
mod watching;

use isthmus_lab::{router::Kind, sandbox};

use rig::{Rig, Session, Sessions, Transport};

/// Runs `case` in a sandbox; skips, and says so, where the program is not installed.
fn run(test: &str, kind: Kind, session: Session, case: impl FnOnce(Rig)) {
    if kind.installed(test) {
        sandbox::run_with_bins(test, |bins| case(Rig::start(kind, session, bins)));
    }
}

const EXTERNAL_V4: Session = Session::external(Transport::V4);
const EXTERNAL_V6: Session = Session::external(Transport::V6);
const INTERNAL_V4: Session = Session::internal(Transport::V4);
const INTERNAL_V6: Session = Session::internal(Transport::V6);

macro_rules! kind {
    (bird) => {
        Kind::Bird
    };
    (frr) => {
        Kind::Frr
    };
    (gobgp) => {
        Kind::Gobgp
    };
}

/// Tests of a case: `name: [programs], session, case;`. A session is one for all, or a function of the program.
macro_rules! cases {
    ($($name:ident: [$($program:ident)+], $session:expr, $case:expr;)*) => {
        $(mod $name {
            use super::*;
            $(
                #[test]
                fn $program() {
                    let kind = kind!($program);
                    let test = concat!(stringify!($name), "::", stringify!($program));
                    run(test, kind, $session.of(kind), $case);
                }
            )+
        })*
    };
}

cases! {
    external_over_v4: [bird frr gobgp], EXTERNAL_V4, exchange::exchange;
    external_over_v6: [bird frr gobgp], EXTERNAL_V6, exchange::exchange;
    internal_over_v4: [bird frr gobgp], INTERNAL_V4, exchange::exchange;
    internal_over_v6: [bird frr gobgp], INTERNAL_V6, exchange::exchange;
    they_come_back: [bird frr gobgp], EXTERNAL_V4, exchange::come_back;
    we_leave: [bird frr gobgp], EXTERNAL_V6, exchange::leave;
    policies_are_seen: [bird frr gobgp], policies::TAGGING, policies::are_seen;
    preferences_are_seen: [bird frr gobgp], policies::PREFERRING, policies::preferences;
    we_reflect: [bird frr gobgp], reflection::session, reflection::we_reflect;
    we_are_reflected_to: [bird frr gobgp], reflection::client, reflection::we_are_clients;
    we_refuse_loops: [bird], reflection::looping, reflection::we_refuse_loops;
    they_refresh: [bird frr], EXTERNAL_V4, refresh::theirs;
    we_refresh: [bird frr gobgp], EXTERNAL_V6, refresh::ours;
    our_limit: [bird frr gobgp], limits::our_session, limits::ours;
    their_limit: [bird gobgp], limits::theirs_session, limits::theirs;
    password_when_they_dial: [bird frr gobgp], protection::they_dial, protection::comes_up;
    password_when_we_dial: [bird frr gobgp], protection::we_dial, protection::comes_up;
    wrong_password: [bird frr gobgp], protection::wrong, protection::is_mended;
    ttl_security: [bird frr gobgp], protection::ttl, protection::comes_up;
    they_shut_down: [bird frr gobgp], EXTERNAL_V4, parting::they_shut_down;
    we_shut_down: [bird frr gobgp], EXTERNAL_V4, parting::we_shut_down;
    hard_reset: [frr], parting::session, parting::hard_reset;
    we_send_several_paths: [bird frr gobgp], several_paths::from_us, several_paths::we_send;
    they_send_several_paths: [bird], several_paths::from_them, several_paths::they_send;
    extended_next_hop: [bird frr], next_hops::extended, next_hops::v4_over_v6;
    link_local: [bird frr], next_hops::link_local, next_hops::on_the_link;
    roles_agree: [bird frr], roles::customer, roles::agree;
    roles_clash: [bird frr], roles::clashing, roles::clash;
    we_help_a_restart: [bird frr gobgp], restart::session, restart::we_help;
    they_help_a_restart: [bird frr gobgp], restart::session, restart::they_help;
    path_is_watched: [bird frr], watching::one_hop, watching::fails;
    far_path_is_watched: [bird frr], watching::multihop, watching::fails;
    watching_is_ended: [frr], watching::one_hop, watching::is_ended;
}
