//! BIRD 2.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{
    Router,
    answer::{Route, Updates},
    daemon::Daemon,
};
use crate::netns::Netns;

const CONTROL: &str = "bird.ctl";

pub(super) fn commands(netns: &Netns, dir: &Path) -> Result<Vec<Daemon>> {
    let path = |name: &str| dir.join(name).display().to_string();
    let arguments = ["-f", "-c", &path("config"), "-s", &path(CONTROL), "-P", &path("pid")];
    let daemon = Daemon::new(netns, "bird", arguments.map(str::to_owned).to_vec());
    // Graceful restart, where its configuration has it (RFC 4724).
    Ok(vec![daemon.with_socket(dir.join(CONTROL)).with_recovery(&["-R"])])
}

pub(super) fn client(netns: &Netns, dir: &Path, command: &str) -> Result<Command> {
    let mut client = netns.command("birdc")?;
    client.arg("-s").arg(dir.join(CONTROL)).args(command.split(' ')).stdin(Stdio::null());
    Ok(client)
}

/// A protocol `bgp` is looked for by its neighbor's address.
pub(super) fn session(router: &Router, neighbor: &str) -> Result<String> {
    let said = router.ask("show protocols all")?;
    let mut state = None;
    for line in said.lines().map(str::trim) {
        state = line.strip_prefix("BGP state:").map(|state| state.trim().to_owned()).or(state);
        // A link-local one has its interface behind it.
        let address = line.strip_prefix("Neighbor address: ").and_then(|address| address.split('%').next());
        if address == Some(neighbor) {
            return state.context("a session without a state");
        }
    }
    Err(anyhow::anyhow!("no neighbor {neighbor} in {said}"))
}

pub(super) fn route(router: &Router, prefix: &str) -> Result<Option<Route>> {
    Ok(ask_routes(router, prefix, "primary all")?.into_iter().next())
}

pub(super) fn routes(router: &Router, prefix: &str) -> Result<Vec<Route>> {
    ask_routes(router, prefix, "all")
}

fn ask_routes(router: &Router, prefix: &str, what: &str) -> Result<Vec<Route>> {
    match router.ask(&format!("show route {prefix} {what}")) {
        Ok(said) => Ok(paths(&said).iter().map(|path| parse(path)).collect()),
        // To its client this is a failure.
        Err(error) if format!("{error:#}").contains("Network not found") => Ok(vec![]),
        Err(error) => Err(error),
    }
}

/// Those that came by BGP; each begins at the margin, what is said of it does not.
fn paths(said: &str) -> Vec<String> {
    let mut paths: Vec<String> = vec![];
    for line in said.lines() {
        match paths.last_mut() {
            Some(path) if line.starts_with('\t') => *path += &format!("{line}\n"),
            _ => paths.push(format!("{line}\n")),
        }
    }
    paths.retain(|path| path.contains("Type: BGP"));
    paths
}

/// It counts routes.
pub(super) fn updates(router: &Router) -> Result<Updates> {
    let said = router.ask("show protocols all isthmus")?;
    let sum = |name: &str| {
        let lines = said.lines().filter_map(|line| line.trim().strip_prefix(name));
        lines.filter_map(|counts| counts.split_whitespace().next()?.parse::<u64>().ok()).sum()
    };
    Ok(Updates { received: sum("Import updates:"), sent: sum("Export updates:") })
}

fn parse(said: &str) -> Route {
    let field = |name: &str| {
        let value = said.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap_or_default();
        value.trim().to_owned()
    };
    let communities = |text: String| {
        let each = text
            .split(')')
            .map(|one| one.trim().trim_start_matches('(').replace(", ", ":").replace(',', ":"));
        each.filter(|one| !one.is_empty()).collect()
    };
    Route {
        as_path: field("BGP.as_path:"),
        next_hops: field("BGP.next_hop:").split(' ').map(str::to_owned).collect(),
        communities: communities(field("BGP.community:")),
        large_communities: communities(field("BGP.large_community:")),
        local_pref: field("BGP.local_pref:").parse().ok(),
        med: field("BGP.med:").parse().ok(),
        originator: field("BGP.originator_id:"),
        clusters: field("BGP.cluster_list:").split_whitespace().map(str::to_owned).collect(),
    }
}

/// Its configuration has a protocol `static` for each prefix that a test wants to come and go, called as [`protocol`] says.
pub(super) fn originate(router: &Router, prefix: &str, wanted: bool) -> Result<()> {
    let verb = if wanted { "enable" } else { "disable" };
    let said = router.ask(&format!("{verb} {}", protocol(prefix)))?;
    ensure!(said.contains("abled"), "{said}");
    Ok(())
}

/// The name of the protocol that originates a prefix.
fn protocol(prefix: &str) -> String {
    format!("o_{}", prefix.replace(['.', ':', '/'], "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_read_whole() {
        let said = "Table master4:
10.20.0.0/16         unicast [isthmus 12:00:00.000] * (100) [AS64999i]
\tvia 10.99.0.1 on wg0
\tType: BGP univ
\tBGP.origin: IGP
\tBGP.as_path: 4200000020 64999
\tBGP.next_hop: 10.10.0.1
\tBGP.local_pref: 100
\tBGP.community: (65020,7) (65000,8)
\tBGP.large_community: (4200000020, 1, 2)
";
        let route = parse(said);
        assert_eq!((route.as_path.as_str(), route.local_pref), ("4200000020 64999", Some(100)));
        assert_eq!(route.next_hops, ["10.10.0.1"]);
        assert_eq!(route.communities, ["65020:7", "65000:8"]);
        assert_eq!(route.large_communities, ["4200000020:1:2"]);
    }

    #[test]
    fn paths_are_told_apart() {
        let said = "Table master4:
10.20.0.0/16         unicast [isthmus 12:00:00.000] * (100) [AS64999i]
\tvia 10.99.0.1 on wg0
\tType: BGP univ
\tBGP.med: 7
                     blackhole [o_10_20_0_0_16 12:00:00.000] (200)
\tType: static univ
                     unicast [isthmus 12:00:00.000] (100) [AS64999i]
\tType: BGP univ
\tBGP.originator_id: 10.0.0.1
\tBGP.cluster_list: 10.0.0.2 10.0.0.3
";
        let routes: Vec<_> = paths(said).iter().map(|path| parse(path)).collect();
        assert_eq!(routes.iter().map(|route| route.med).collect::<Vec<_>>(), [Some(7), None]);
        assert_eq!(routes[1].originator, "10.0.0.1");
        assert_eq!(routes[1].clusters, ["10.0.0.2", "10.0.0.3"]);
    }

    #[test]
    fn protocols_have_names_that_bird_takes() {
        assert_eq!(protocol("10.20.0.0/16"), "o_10_20_0_0_16");
        assert_eq!(protocol("fd20::/48"), "o_fd20___48");
    }
}
