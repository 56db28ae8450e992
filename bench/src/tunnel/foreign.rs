//! A rival at one end: a program that makes the interface it is given, and is configured by `wg`.

use std::{
    fmt::Write,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ipnet::IpNet;
use isthmus_lab::{files::write_secret, netns::Netns, wait};

use super::LIMIT;
use crate::{
    contender::Contender,
    rig::{INNER_LENGTH, INNER_MTU, Side, TUNNEL_PORT},
};

/// Where all of them put the sockets that `wg` speaks to.
const SOCKETS: &str = "/var/run/wireguard";
/// How much of a log an error quotes, in lines.
const TAIL: usize = 15;

/// The running program, killed when dropped.
pub(super) struct Foreign {
    child: Child,
    log: PathBuf,
}

impl Foreign {
    /// Starts it in `netns`, configures it and gives its interface its address and MTU.
    pub(super) fn start(contender: &Contender, netns: &Netns, side: &Side, dir: &Path) -> Result<Self> {
        let (interface, log) = (format!("wg-{}", netns.name()), dir.join(format!("{}.log", netns.name())));
        let mut foreign = Self::spawn(contender, netns, &interface, log)?;
        foreign.wait_for_interface(netns, &interface).map_err(|error| foreign.blame(&error))?;
        // Before it carries anything: boringtun-cli looks at the MTU once.
        netns.set_mtu(&interface, INNER_MTU)?;
        let path = dir.join(format!("{interface}.conf"));
        write_secret(&path, &text(side)?)?;
        run(netns.command("wg")?.arg("setconf").arg(&interface).arg(&path))
            .map_err(|error| foreign.blame(&error))?;
        netns.add_address(&interface, IpNet::new(side.address, INNER_LENGTH)?)?;
        netns.link_up(&interface)?;
        Ok(foreign)
    }

    fn spawn(contender: &Contender, netns: &Netns, interface: &str, log: PathBuf) -> Result<Self> {
        fs::create_dir_all(SOCKETS).with_context(|| format!("making {SOCKETS}"))?;
        // A killed one leaves its socket, which would look as if the next were up.
        let _ = fs::remove_file(socket(interface));
        let output = File::create(&log)?;
        let mut command = netns.command(&contender.path)?;
        command.args(contender.name.arguments()).arg(interface);
        command.env("LOG_LEVEL", "error").env("WG_LOG_LEVEL", "error");
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("starting {}", contender.path.display()))?;
        Ok(Self { child, log })
    }

    fn wait_for_interface(&mut self, netns: &Netns, interface: &str) -> Result<()> {
        let socket = socket(interface);
        let mut ended = None;
        wait::until(&format!("interface {interface}"), LIMIT, || {
            ended = self.child.try_wait()?;
            let there = socket.exists() && netns.links()?.iter().any(|link| link == interface);
            ensure!(there || ended.is_some(), "it is not there");
            Ok(())
        })?;
        ended.map_or(Ok(()), |status| bail!("the program ended by itself: {status}"))
    }

    /// Its process number.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file's name and its last lines.
    pub(super) fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(TAIL)..].join("\n"))
    }

    fn blame(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{error:#}\n--- the end of {}", self.log_tail())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(interface: &str) -> PathBuf {
    Path::new(SOCKETS).join(format!("{interface}.sock"))
}

fn text(side: &Side) -> Result<String> {
    let mut text = format!("[Interface]\nPrivateKey = {}\nListenPort = {TUNNEL_PORT}\n", side.key.private);
    for peer in &side.peers {
        writeln!(text, "[Peer]\nPublicKey = {}", peer.public)?;
        writeln!(text, "Endpoint = {}\nAllowedIPs = {}/32", peer.endpoint, peer.address)?;
        if peer.keepalive {
            writeln!(text, "PersistentKeepalive = 25")?;
        }
    }
    Ok(text)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", command.get_program().display(), said.trim());
    Ok(())
}
