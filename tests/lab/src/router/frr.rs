//! FRR: zebra for the kernel, bfdd, bgpd, with sockets of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use nix::unistd::{User, chown};
use serde_json::Value;

use super::{
    Router, Scope,
    answer::{Route, Updates},
    daemon::Daemon,
};
use crate::netns::Netns;

pub(super) const ZEBRA: &str = "/usr/lib/frr/zebra";
pub(super) const BFDD: &str = "/usr/lib/frr/bfdd";
pub(super) const BGPD: &str = "/usr/lib/frr/bgpd";

/// Its daemons give up root, so that their files must be where their user can go; `/run` is the sandbox's own.
const RUN: &str = "/run/isthmus-lab-frr";
const USER: &str = "frr";

pub(super) fn commands(netns: &Netns, dir: &Path, scope: Scope) -> Result<Vec<Daemon>> {
    let run = make_run_dir(netns)?;
    fs::copy(dir.join("config"), run.join("config"))?;
    fs::write(run.join("nothing"), "")?;
    let daemon = |program, config, more: &[&str], socket: &str| {
        Daemon::new(netns, program, arguments(&run, config, socket, more)).with_socket(run.join(socket))
    };
    let control = run.join("bfdd.sock").display().to_string();
    Ok(match scope {
        Scope::Whole => vec![
            daemon(ZEBRA, "nothing", &[], "zserv"),
            daemon(BFDD, "nothing", &["--bfdctl", &control], "bfdd.vty"),
            daemon(BGPD, "config", &[], "bgpd.vty"),
        ],
        Scope::Bgp => vec![daemon(BGPD, "config", &["-n", "-Z"], "bgpd.vty")],
    })
}

/// No TCP port for a terminal, all files in `run`.
fn arguments(run: &Path, config: &str, socket: &str, more: &[&str]) -> Vec<String> {
    let path = |name: &str| run.join(name).display().to_string();
    let pid = path(&format!("{socket}.pid"));
    let common =
        ["-P", "0", "--vty_socket", &path(""), "-z", &path("zserv"), "-i", &pid, "-f", &path(config)];
    common.iter().chain(more).map(|argument| (*argument).to_owned()).collect()
}

/// Empty, and its user's.
fn make_run_dir(netns: &Netns) -> Result<PathBuf> {
    let run = run_dir(netns);
    // What an earlier one in this namespace left.
    let _ = fs::remove_dir_all(&run);
    fs::create_dir_all(&run).with_context(|| format!("making {}", run.display()))?;
    let user = User::from_name(USER)?.with_context(|| format!("there is no user {USER}"))?;
    chown(&run, Some(user.uid), Some(user.gid))?;
    Ok(run)
}

fn run_dir(netns: &Netns) -> PathBuf {
    Path::new(RUN).join(netns.name())
}

/// `command` may be several, with newlines between them.
pub(super) fn client(netns: &Netns, command: &str) -> Result<Command> {
    let mut client = netns.command("vtysh")?;
    client.arg("--vty_socket").arg(run_dir(netns)).stdin(Stdio::null());
    for line in command.lines() {
        client.arg("-c").arg(line);
    }
    Ok(client)
}

pub(super) fn session(router: &Router, neighbor: &str) -> Result<String> {
    let said: Value = serde_json::from_str(&router.ask(&format!("show bgp neighbors {neighbor} json"))?)?;
    let state = said[neighbor]["bgpState"].as_str();
    Ok(state.with_context(|| format!("no neighbor {neighbor} in {said}"))?.to_owned())
}

pub(super) fn route(router: &Router, prefix: &str) -> Result<Option<Route>> {
    let paths = heard(router, prefix)?;
    Ok(paths.iter().find(|path| path["bestpath"]["overall"] == true).map(parse))
}

pub(super) fn routes(router: &Router, prefix: &str) -> Result<Vec<Route>> {
    Ok(heard(router, prefix)?.iter().map(parse).collect())
}

/// Paths that came from others.
fn heard(router: &Router, prefix: &str) -> Result<Vec<Value>> {
    let said = router.ask(&format!("show bgp {} unicast {prefix} json", family(prefix)))?;
    let said: Value = serde_json::from_str(&said)?;
    let paths = said["paths"].as_array().cloned().unwrap_or_default();
    Ok(paths.into_iter().filter(|path| path["peer"]["peerId"] != "0.0.0.0").collect())
}

pub(super) fn updates(router: &Router, neighbor: &str) -> Result<Updates> {
    let said: Value = serde_json::from_str(&router.ask(&format!("show bgp neighbors {neighbor} json"))?)?;
    let count = |name: &str| said[neighbor]["messageStats"][name].as_u64();
    let [received, sent] = ["updatesRecv", "updatesSent"].map(count);
    Ok(Updates { received: received.context("no count")?, sent: sent.context("no count")? })
}

fn parse(path: &Value) -> Route {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().and_then(|value| value.try_into().ok());
    let words = |value: &Value| text(value).split_whitespace().map(str::to_owned).collect();
    let next_hops = path["nexthops"].as_array().into_iter().flatten();
    Route {
        // Its word for none.
        as_path: text(&path["aspath"]["string"]).replace("Local", ""),
        next_hops: next_hops.map(|hop| text(&hop["ip"])).collect(),
        communities: words(&path["community"]["string"]),
        large_communities: words(&path["largeCommunity"]["string"]),
        local_pref: number(&path["locPrf"]),
        med: number(&path["metric"]),
        originator: text(&path["originatorId"]),
        clusters: path["clusterList"]["list"].as_array().into_iter().flatten().map(text).collect(),
    }
}

/// By a route map `TAG`, where the configuration has one.
pub(super) fn originate(router: &Router, prefix: &str, wanted: bool) -> Result<()> {
    let line =
        if wanted { format!("network {prefix} route-map TAG") } else { format!("no network {prefix}") };
    let commands =
        format!("configure terminal\nrouter bgp\naddress-family {} unicast\n{line}", family(prefix));
    let said = router.ask(&commands)?;
    ensure!(!said.contains('%'), "{said}");
    Ok(())
}

fn family(prefix: &str) -> &'static str {
    if prefix.contains(':') { "ipv6" } else { "ipv4" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_path_is_no_word() {
        assert_eq!(parse(&json!({"aspath": {"string": "Local"}})).as_path, "");
    }

    #[test]
    fn a_route_is_read_whole() {
        let path = json!({
            "aspath": {"string": "4200000020 64999"},
            "nexthops": [{"ip": "fd7a::1", "scope": "global"}, {"ip": "fe80::1", "scope": "link-local"}],
            "community": {"string": "65020:7 65000:8"},
            "largeCommunity": {"string": "4200000020:1:2"},
            "locPrf": 100,
        });
        let route = parse(&path);
        assert_eq!((route.as_path.as_str(), route.local_pref), ("4200000020 64999", Some(100)));
        assert_eq!(route.next_hops, ["fd7a::1", "fe80::1"]);
        assert_eq!(route.communities, ["65020:7", "65000:8"]);
        assert_eq!(route.large_communities, ["4200000020:1:2"]);
    }
}
