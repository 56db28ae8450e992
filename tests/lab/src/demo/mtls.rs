//! Step 4, second half: two workloads authenticate each other through the tunnel, and a stranger is turned away.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use isthmus_lab::{bins::Bins, netns::Netns};
use isthmus_pki::{Authority, Curve, Key, Profile, Serial, SpiffeId, bundle::certificates, bundle::to_pem};
use time::OffsetDateTime;

use super::{
    ceremony::Pki,
    config::workload_path,
    fabric::Fabric,
    network::Network,
    plan::{AWS, AZURE, Site, TRUST_DOMAIN},
    progress::Outcome,
    workload::{ACCEPTED, LISTENING, REFUSED},
};

const LIMIT: Duration = Duration::from_secs(15);
const PORT: u16 = 8443;

/// Genuine client: served. Foreign client, with the very same names: refused, by the server.
pub(super) fn run(network: &Network, fabric: &mut Fabric, directory: &Path, bins: &Bins) -> Result<Outcome> {
    let (client, server) = (workload_id(AWS)?, workload_id(AZURE)?);
    let address = SocketAddr::new(AZURE.host_addresses()[1], PORT);
    let mut service = Service::start(network.get(&AZURE.host())?, fabric, address, &client)?;
    service.next(fabric, LISTENING)?;

    let socket = fabric.node(AWS.gateways[0].name)?.workload_socket();
    let genuine = dial(network.get(&AWS.host())?, fabric, address, &server, ("--socket", &socket))?;
    ensure!(genuine.status.success(), "{client} was not served: {}", said(&genuine));
    service.next(fabric, ACCEPTED)?;

    let stranger = foreign(directory, bins, &client)?;
    let refused = dial(network.get(&AWS.host())?, fabric, address, &server, ("--files", &stranger))?;
    ensure!(!refused.status.success(), "a client from a foreign root was served: {}", said(&refused));
    let reason = service.next(fabric, REFUSED)?;
    let reason = reason.trim_start_matches(REFUSED);
    Ok(format!(
        "{client} and {server} authenticated each other; same names under a foreign root: refused ({reason})"
    )
    .into())
}

fn workload_id(site: &Site) -> Result<SpiffeId> {
    Ok(SpiffeId::parse(&format!("spiffe://{TRUST_DOMAIN}{}", workload_path(site)))?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// The server's process and the lines it prints.
struct Service {
    child: Child,
    lines: Receiver<String>,
}

impl Service {
    fn start(netns: &Netns, fabric: &Fabric, address: SocketAddr, client: &SpiffeId) -> Result<Self> {
        let mut command = workload(netns, "workload-server")?;
        command.arg("--socket").arg(fabric.node(AZURE.gateways[0].name)?.workload_socket());
        command.arg("--listen").arg(address.to_string()).arg("--client").arg(client.to_string());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let output = child.stdout.take().context("its output is not a pipe")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { child, lines })
    }

    /// Its next line, which must begin so.
    fn next(&mut self, fabric: &mut Fabric, begin: &str) -> Result<String> {
        let lines = &self.lines;
        let line = fabric.until(&format!("the server's line {begin:?}"), LIMIT, |_| Ok(lines.try_recv()?))?;
        ensure!(line.starts_with(begin), "the server said {line:?} instead of {begin:?}");
        Ok(line)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dial(
    netns: &Netns,
    fabric: &mut Fabric,
    address: SocketAddr,
    server: &SpiffeId,
    (flag, path): (&str, &Path),
) -> Result<Output> {
    let mut command = workload(netns, "workload-client")?;
    command
        .arg(flag)
        .arg(path)
        .arg("--connect")
        .arg(address.to_string())
        .arg("--server")
        .arg(server.to_string());
    fabric.watch("mutual TLS from the AWS host", LIMIT, move || Ok(command.output()?))
}

fn workload(netns: &Netns, role: &str) -> Result<Command> {
    let mut command = netns.command(env::current_exe()?)?;
    command.arg(role).stdin(Stdio::null());
    Ok(command)
}

/// A stranger's identity in files: the same trust domain, site and SPIFFE ID, but another root.
fn foreign(directory: &Path, bins: &Bins, id: &SpiffeId) -> Result<PathBuf> {
    let mut pki = Pki::root(&directory.join("foreign"), bins)?;
    pki.site(AWS)?;
    let at_site = pki.site_directory(AWS);
    let certificate = certificates(&fs::read(at_site.join("site-ca.pem"))?)?.into_iter().next();
    let ca_key = Key::from_pem(&fs::read(at_site.join("site-ca.key"))?, None)?;
    let authority = Authority::load(certificate.context("the foreign site CA is empty")?, ca_key)?;
    let key = Key::generate(Curve::P256)?;
    let profile = Profile::Svid { id: id.clone(), dns_names: Vec::new(), lifetime: time::Duration::hours(1) };
    let serial = Serial::from_random(rand::random());
    let issued = authority.issue(&profile, &key.public(), serial, OffsetDateTime::now_utc())?;
    let chain = to_pem([&issued.certificate, authority.certificate()]);
    // It knows the genuine root, so that it is the server who refuses, not the client.
    let genuine = directory.join("pki/root/root.pem");
    let out = directory.join("foreign/workload");
    fs::create_dir(&out)?;
    fs::write(out.join("chain.pem"), chain)?;
    fs::copy(genuine, out.join("bundle.pem"))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(out.join("key.pem"))?;
    file.write_all(key.to_pem().as_bytes())?;
    Ok(out)
}
