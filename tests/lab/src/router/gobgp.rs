//! GoBGP. It has no kernel table of its own.

use std::{
    net::IpAddr,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Router,
    answer::{Route, Updates},
    daemon::Daemon,
};
use crate::netns::Netns;

/// Each namespace has its own loopback.
const API: &str = "127.0.0.1:50051";

pub(super) fn commands(netns: &Netns, dir: &Path) -> Result<Vec<Daemon>> {
    let config = dir.join("config").display().to_string();
    let arguments = ["-f", &config, "-t", "toml", "--api-hosts", API, "--pprof-disable", "-p", "-l", "warn"];
    let daemon = Daemon::new(netns, "gobgpd", arguments.map(str::to_owned).to_vec());
    // It says that it restarts (RFC 4724) only when it is told to.
    Ok(vec![daemon.with_recovery(&["-r"])])
}

pub(super) fn client(netns: &Netns, command: &str) -> Result<Command> {
    let mut client = netns.command("gobgp")?;
    client.args(["-u", "127.0.0.1", "-p", "50051"]).args(command.split(' ')).stdin(Stdio::null());
    Ok(client)
}

/// The words of RFC 4271 by GoBGP's own number (its `PeerState_SessionState`).
const STATES: [&str; 7] = ["Unknown", "Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established"];

pub(super) fn session(router: &Router, neighbor: &str) -> Result<String> {
    let said: Value = serde_json::from_str(&router.ask(&format!("-j neighbor {neighbor}"))?)?;
    let state = said["state"]["session_state"].as_u64().and_then(|number| usize::try_from(number).ok());
    let state = state.and_then(|number| STATES.get(number));
    Ok((*state.with_context(|| format!("no state in {said}"))?).to_owned())
}

pub(super) fn route(router: &Router, prefix: &str) -> Result<Option<Route>> {
    Ok(paths(router, prefix)?.first().filter(|path| is_heard(path)).map(parse))
}

pub(super) fn routes(router: &Router, prefix: &str) -> Result<Vec<Route>> {
    Ok(paths(router, prefix)?.iter().filter(|path| is_heard(path)).map(parse).collect())
}

/// The best first.
fn paths(router: &Router, prefix: &str) -> Result<Vec<Value>> {
    let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
    let Ok(said) = router.ask(&format!("-j global rib -a {family} {prefix}")) else {
        // "Network not in table" is a failure to its client, and has no form of its own.
        return Ok(vec![]);
    };
    let said: Value = serde_json::from_str(&said)?;
    Ok(said[prefix].as_array().cloned().unwrap_or_default())
}

fn is_heard(path: &Value) -> bool {
    path["neighbor-ip"].as_str().is_some_and(|ip| ip.parse::<IpAddr>().is_ok())
}

pub(super) fn updates(router: &Router, neighbor: &str) -> Result<Updates> {
    let said: Value = serde_json::from_str(&router.ask(&format!("-j neighbor {neighbor}"))?)?;
    let messages = &said["state"]["messages"];
    // What is zero it leaves out.
    let count = |way: &str| messages[way]["update"].as_u64().unwrap_or_default();
    Ok(Updates { received: count("received"), sent: count("sent") })
}

fn parse(path: &Value) -> Route {
    let mut route = Route::default();
    for attribute in path["attrs"].as_array().into_iter().flatten() {
        let numbers = |key: &str| attribute[key].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match attribute["type"].as_u64() {
            Some(2) => route.as_path = as_path(&numbers("as_paths")),
            Some(3 | 14) => route.next_hops = vec![text(&attribute["nexthop"])],
            Some(4) => route.med = attribute["metric"].as_u64().and_then(|value| value.try_into().ok()),
            Some(5) => route.local_pref = attribute["value"].as_u64().and_then(|value| value.try_into().ok()),
            Some(8) => route.communities = numbers("communities").iter().filter_map(community).collect(),
            Some(9) => route.originator = text(&attribute["value"]),
            Some(10) => route.clusters = numbers("value").iter().map(text).collect(),
            Some(32) => route.large_communities = numbers("value").iter().map(large).collect(),
            _ => {}
        }
    }
    route
}

fn as_path(segments: &[Value]) -> String {
    let numbers = segments.iter().flat_map(|segment| segment["asns"].as_array().into_iter().flatten());
    numbers.map(Value::to_string).collect::<Vec<_>>().join(" ")
}

fn community(value: &Value) -> Option<String> {
    let value = value.as_u64()?;
    Some(format!("{}:{}", value >> 16, value & 0xffff))
}

fn large(value: &Value) -> String {
    ["ASN", "LocalData1", "LocalData2"].map(|key| value[key].to_string()).join(":")
}

/// Its clients can say communities.
pub(super) fn originate(router: &Router, prefix: &str, wanted: bool) -> Result<()> {
    let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
    let asn: Value = serde_json::from_str(&router.ask("-j global")?)?;
    let more = format!(" community 65000:7 large-community {}:1:2", asn["asn"]);
    let (verb, more) = if wanted { ("add", more.as_str()) } else { ("del", "") };
    router.ask(&format!("global rib {verb} -a {family} {prefix}{more}")).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_route_is_read_whole() {
        let path = json!({"attrs": [
            {"type": 1, "value": 0},
            {"type": 2, "as_paths": [{"segment_type": 2, "num": 2, "asns": [4_200_000_020_u32, 64999]}]},
            {"type": 3, "nexthop": "10.10.0.1"},
            {"type": 5, "value": 100},
            {"type": 8, "communities": [4_261_150_727_u32]},
            {"type": 32, "value": [{"ASN": 4_200_000_020_u32, "LocalData1": 1, "LocalData2": 2}]},
        ]});
        let route = parse(&path);
        assert_eq!((route.as_path.as_str(), route.local_pref), ("4200000020 64999", Some(100)));
        assert_eq!(route.next_hops, ["10.10.0.1"]);
        assert_eq!(route.communities, ["65020:7"]);
        assert_eq!(route.large_communities, ["4200000020:1:2"]);
    }
}
