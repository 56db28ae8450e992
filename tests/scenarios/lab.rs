//! The lab keeps its own promises: what it makes works, and nothing of it is left, however a test ends.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    env, fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use ipnet::IpNet;
use isthmus_lab::{
    link::veth,
    netns::Netns,
    peers::{required, skipped},
    probe::{Flow, Prober, TcpSink, UdpEcho, reach, send},
    sandbox::{self, Lifetime, Support, enter_on_exec},
    wait,
};

const LIMIT: Duration = Duration::from_secs(10);

/// Two hosts with a router in between, both families.
struct Three {
    left: Netns,
    router: Netns,
    right: Netns,
}

fn three() -> Three {
    let [left, router, right] = ["left", "router", "right"].map(|name| Netns::create(name).unwrap());
    veth((&left, "eth0"), (&router, "left")).unwrap();
    veth((&right, "eth0"), (&router, "right")).unwrap();
    router.forward().unwrap();
    for (host, link, ours, theirs) in [
        (&left, "left", "192.0.2.2/30", "192.0.2.1/30"),
        (&right, "right", "198.51.100.2/30", "198.51.100.1/30"),
        (&left, "left", "2001:db8:1::2/64", "2001:db8:1::1/64"),
        (&right, "right", "2001:db8:2::2/64", "2001:db8:2::1/64"),
    ] {
        let theirs: IpNet = theirs.parse().unwrap();
        host.add_address("eth0", ours.parse().unwrap()).unwrap();
        router.add_address(link, theirs).unwrap();
        host.add_default_route(theirs.addr()).unwrap();
    }
    Three { left, router, right }
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

#[test]
fn both_families_cross_a_router() {
    sandbox::run("both_families_cross_a_router", || {
        let three = three();
        for address in ["198.51.100.2", "2001:db8:2::2"] {
            let echo = UdpEcho::start(&three.right, at(address, 7)).unwrap();
            reach(&three.left, echo.address(), LIMIT).unwrap();
            let sink = TcpSink::start(&three.right, at(address, 9), LIMIT).unwrap();
            assert_eq!(send(&three.left, sink.address(), 1_000_001, LIMIT).unwrap().bytes, 1_000_001);
            sink.finish().unwrap();
            assert!(
                reach(&three.left, at(address, 8), Duration::from_millis(300)).is_err(),
                "nobody serves port 8"
            );
        }
        let route = three.left.route_to("198.51.100.2".parse::<IpAddr>().unwrap()).unwrap();
        assert_eq!(route.gateway, Some("192.0.2.1".parse().unwrap()));
        assert_eq!((route.interface.as_str(), route.source), ("eth0", Some("192.0.2.2".parse().unwrap())));
    });
}

#[test]
fn a_bridge_joins_its_ports() {
    sandbox::run("a_bridge_joins_its_ports", || {
        let [hub, a, b] = ["hub", "a", "b"].map(|name| Netns::create(name).unwrap());
        veth((&a, "eth0"), (&hub, "a")).unwrap();
        veth((&b, "eth0"), (&hub, "b")).unwrap();
        hub.bridge("br0", &["a", "b"]).unwrap();
        a.add_address("eth0", "10.10.0.1/16".parse().unwrap()).unwrap();
        b.add_address("eth0", "10.10.0.2/16".parse().unwrap()).unwrap();
        let echo = UdpEcho::start(&b, at("10.10.0.2", 7)).unwrap();
        reach(&a, echo.address(), LIMIT).unwrap();
        a.delete_link("eth0").unwrap();
        assert_eq!(
            (a.links().unwrap(), hub.links().unwrap().contains(&"a".to_owned())),
            (vec!["lo".to_owned()], false)
        );
    });
}

#[test]
fn a_prober_sees_the_gap_of_each_flow() {
    sandbox::run("a_prober_sees_the_gap_of_each_flow", || {
        let three = three();
        let flows: Vec<Flow> = ["198.51.100.2", "2001:db8:2::2"]
            .iter()
            .flat_map(|address| Flow::several(at(address, 7), 40000, 3))
            .collect();
        let echoes = ["198.51.100.2", "2001:db8:2::2"]
            .map(|address| UdpEcho::start(&three.right, at(address, 7)).unwrap());
        let prober = Prober::start(&three.left, &flows, Duration::from_millis(10)).unwrap();
        more(&prober);
        three.router.link_down("right").unwrap();
        let down = std::time::Instant::now();
        wait::until_true("half a second of silence", LIMIT, || down.elapsed() > Duration::from_millis(500))
            .unwrap();
        three.router.link_up("right").unwrap();
        three.router.add_address("right", "2001:db8:2::1/64".parse().unwrap()).unwrap(); // the kernel forgets it with the link
        more(&prober);
        let reports = prober.stop().unwrap();
        drop(echoes);
        assert_eq!(reports.len(), 6);
        for report in reports {
            assert!(report.longest_gap >= Duration::from_millis(450), "{report:?}");
            assert!(report.received > 0 && report.received < report.sent, "{report:?}");
        }
    });
}

/// Waits until every flow has got answers from now on.
fn more(prober: &Prober) {
    let before = prober.received();
    wait::until("answers on every flow", LIMIT, || {
        let now = prober.received();
        anyhow::ensure!(
            before.iter().zip(&now).all(|(before, now)| now >= &(before + 5)),
            "{before:?} {now:?}"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
fn futures_and_commands_run_inside() {
    sandbox::run("futures_and_commands_run_inside", || {
        let here = fs::read_link("/proc/thread-self/ns/net").unwrap();
        let netns = Netns::create("inside").unwrap();
        let seen = netns.block_on(|| async { fs::read_link("/proc/thread-self/ns/net").unwrap() }).unwrap();
        let output = netns.command("readlink").unwrap().arg("/proc/self/ns/net").output().unwrap();
        assert_ne!(seen, here);
        assert_eq!(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()), seen);
        assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), here, "the caller stays where it was");
        netns.delete().unwrap();
        assert!(Netns::named("inside").open().is_err());
    });
}

#[test]
fn names_are_unique() {
    sandbox::run("names_are_unique", || {
        Netns::create("twice").unwrap();
        let error = format!("{:#}", Netns::create("twice").unwrap_err());
        assert!(error.contains("twice") && error.contains("File exists"), "{error}");
    });
}

/// The body that the next tests run in a process of their own, to see what is left of it.
#[test]
#[ignore = "a part of the tests below, which give it a file"]
fn leaves_a_mess() {
    let Some(file) = env::var_os("ISTHMUS_LAB_MESS") else { return };
    sandbox::run("leaves_a_mess", || {
        let netns = Netns::create("mess").unwrap();
        netns.bridge("mess0", &[]).unwrap();
        // Started twice removed and told to ignore polite signals: only the kernel will end it.
        let script = format!(
            "trap '' TERM HUP INT; echo $$ > {0}.new; mv {0}.new {0}; exec sleep {1}",
            file.display(),
            mark()
        );
        netns.command("setsid").unwrap().args(["-f", "sh", "-c", &script]).status().unwrap();
        wait::until("the orphan", LIMIT, || Ok(fs::metadata(&file)?)).unwrap();
        assert!(
            env::var_os("ISTHMUS_LAB_HANG").is_none() || wait::until("never", LIMIT * 6, nothing).is_ok()
        );
        panic!("on purpose");
    });
}

fn nothing() -> anyhow::Result<()> {
    anyhow::bail!("nothing happens")
}

/// A number of seconds that no other process sleeps, not even one of another run of this test.
fn mark() -> String {
    env::var("ISTHMUS_LAB_MARK").unwrap_or_else(|_| format!("86371.{}", std::process::id()))
}

fn orphans() -> usize {
    let (mark, processes) = (mark(), fs::read_dir("/proc").unwrap().flatten());
    let commands = processes.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    commands.filter(|command| command.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())).count()
}

fn mess(dir: &tempfile::TempDir, name: &str) -> (Command, PathBuf) {
    let file = dir.path().join(name);
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "leaves_a_mess", "--nocapture", "--ignored"])
        .env("ISTHMUS_LAB_MESS", &file)
        .env("ISTHMUS_LAB_MARK", mark());
    (command, file)
}

#[test]
fn nothing_is_left_of_a_failed_or_killed_test() {
    if let Support::None(why) = sandbox::support() {
        return skipped("nothing_is_left_of_a_failed_or_killed_test", &why);
    }
    let dir = tempfile::tempdir().unwrap();

    let (mut command, file) = mess(&dir, "failed");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("on purpose"), "{said}");
    assert!(file.exists(), "the orphan was there: {said}");
    wait::until_true("the orphan's end", LIMIT, || orphans() == 0).unwrap();

    let (mut command, file) = mess(&dir, "killed");
    let mut child = command.env("ISTHMUS_LAB_HANG", "1").spawn().unwrap();
    wait::until("the second orphan", LIMIT, || Ok(fs::metadata(&file)?)).unwrap();
    // The file is there a moment before the shell has become what is looked for.
    wait::until_true("the second orphan at work", LIMIT, || orphans() == 1).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    wait::until_true("the second orphan's end", LIMIT, || orphans() == 0).unwrap();
}

#[test]
fn a_user_namespace_is_enough() {
    let mut command = Command::new("cat");
    command.args(["/proc/self/uid_map", "/proc/self/setgroups"]);
    match enter_on_exec(&mut command, Lifetime::Caller, true).output() {
        Ok(output) => {
            let said = String::from_utf8(output.stdout).unwrap();
            let words: Vec<&str> = said.split_whitespace().collect();
            let user = nix::unistd::geteuid().to_string();
            assert_eq!(words, ["0", &user, "1", "deny"], "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => skipped("a_user_namespace_is_enough", &error.to_string()),
    }
}

#[test]
#[should_panic(expected = "did not end in time")]
fn a_test_that_hangs_is_ended() {
    if matches!(sandbox::support(), Support::None(_)) && !required() {
        panic!("no sandbox here, so nothing did not end in time");
    }
    let body = || drop(wait::until("never", LIMIT * 6, nothing));
    sandbox::run_for(Duration::from_millis(500), "a_test_that_hangs_is_ended", body);
}

#[test]
#[should_panic(expected = "no test is called misspelt")]
fn a_wrong_name_is_not_a_pass() {
    if matches!(sandbox::support(), Support::None(_)) && !required() {
        panic!("no sandbox here, so no test is called misspelt");
    }
    sandbox::run("misspelt", || ());
}
