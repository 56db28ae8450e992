//! Incoming connections: only configured neighbors, and who comes by a template, get as far as the speaker.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use nix::net::if_::{if_indextoname, if_nametoindex};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

use super::{
    Config, Error, Place, Transport,
    driver::Input,
    metrics,
    socket::{Passwords, change_passwords, prepare_accepted, prepare_listening},
};

/// Connections that the kernel completes before we look at them.
const BACKLOG: i32 = 64;
/// How long accepting rests when the process has no descriptors left.
const REST: Duration = Duration::from_millis(200);

/// Where the configured neighbors are, and how connections with them are made.
#[derive(Default)]
pub(super) struct Neighbors {
    places: HashMap<IpAddr, Vec<(Place, Transport)>>,
    templates: Vec<(IpNet, Transport)>,
}

impl Neighbors {
    pub(super) fn new(config: &Config) -> Self {
        let mut places = HashMap::<_, Vec<_>>::new();
        for neighbor in &config.neighbors {
            let entry = (neighbor.place.clone(), neighbor.transport.clone());
            places.entry(neighbor.place.address).or_default().push(entry);
        }
        let templates = config.templates.iter();
        let templates = templates.map(|one| (one.template.prefix, one.settings.transport.clone())).collect();
        Self { places, templates }
    }

    /// One that is configured with this address, or else whoever comes by the template of the longest prefix.
    fn find(&self, remote: SocketAddr) -> Option<(Place, Transport)> {
        let scope = match remote {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let is_there = |(place, _): &&(Place, Transport)| match &place.interface {
            Some(interface) => if_nametoindex(interface.as_str()).is_ok_and(|index| index == scope),
            None => true,
        };
        let address = remote.ip().to_canonical();
        let places = self.places.get(&address);
        places.and_then(|places| places.iter().find(is_there)).cloned().or_else(|| {
            let covering = self.templates.iter().filter(|(prefix, _)| prefix.contains(&address));
            let (_, transport) = covering.max_by_key(|(prefix, _)| prefix.prefix_len())?;
            Some((Place { address, interface: interface(address, scope) }, transport.clone()))
        })
    }
}

/// The interface that a link-local address belongs to.
fn interface(address: IpAddr, scope: u32) -> Option<String> {
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let name = link_local.then(|| if_indextoname(scope).ok()).flatten()?;
    name.into_string().ok()
}

/// Every listener, or none.
pub(super) struct Listeners(Vec<(SocketAddr, Arc<TcpListener>)>);

impl Listeners {
    /// Binds every address; connections of neighbors with a password are demanded to be signed from the first on.
    pub(super) fn bind(addresses: &[SocketAddr], passwords: &Passwords) -> Result<Self, Error> {
        let bind = |address: &SocketAddr| {
            let listener = bind_one(*address, addresses, passwords)?;
            Ok((*address, Arc::new(listener)))
        };
        addresses.iter().map(bind).collect::<Result<_, _>>().map(Self)
    }

    /// Demands these passwords instead of the former ones.
    pub(super) fn change_passwords(&self, former: &Passwords, wanted: &Passwords) -> Result<(), Error> {
        let changes = self.0.iter().map(|(address, listener)| (listener, *address));
        for (listener, address) in changes {
            if let Err(error) = change_passwords(listener, address, former, wanted) {
                // Those before this one go back, too.
                for (address, listener) in &self.0 {
                    let _ = change_passwords(listener, *address, wanted, former);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Addresses that are listened on, with the ports that the kernel chose for zero.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let of = |(address, listener): &(SocketAddr, Arc<TcpListener>)| {
            listener.local_addr().map_err(|error| Error::listen(*address, error))
        };
        self.0.iter().map(of).collect()
    }

    /// For the tasks that accept.
    pub(super) fn iter(&self) -> impl Iterator<Item = Arc<TcpListener>> {
        self.0.iter().map(|(_, listener)| Arc::clone(listener))
    }
}

fn bind_one(address: SocketAddr, all: &[SocketAddr], passwords: &Passwords) -> Result<TcpListener, Error> {
    let failed = |error| Error::listen(address, error);
    let socket = bound(address, all).map_err(failed)?;
    change_passwords(&socket, address, &Passwords::new(), passwords)?;
    socket.listen(BACKLOG).map_err(failed)?;
    TcpListener::from_std(socket.into()).map_err(failed)
}

fn bound(address: SocketAddr, all: &[SocketAddr]) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` alone takes IPv4 as well; beside an IPv4 listener on its port it must not.
        let beside_v4 = all.iter().any(|other| other.is_ipv4() && other.port() == address.port());
        socket.set_only_v6(beside_v4)?;
    }
    // A restart must not wait for connections of the former run to time out.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    prepare_listening(&socket, address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Accepts until told to stop.
pub(super) async fn accept(
    listener: Arc<TcpListener>,
    neighbors: watch::Receiver<Arc<Neighbors>>,
    inputs: mpsc::Sender<Input>,
    stop: CancellationToken,
) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, remote)) => {
                if !admit(stream, remote, &neighbors, &inputs).await {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept BGP connections");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// False: the driver is gone.
async fn admit(
    stream: TcpStream,
    remote: SocketAddr,
    neighbors: &watch::Receiver<Arc<Neighbors>>,
    inputs: &mpsc::Sender<Input>,
) -> bool {
    let neighbors = Arc::clone(&neighbors.borrow());
    match admitted(&stream, remote, &neighbors) {
        Ok((place, transport)) => inputs.send(Input::Accepted { stream, place, transport }).await.is_ok(),
        Err((label, reason)) => {
            tracing::debug!(%remote, reason, "BGP connection refused");
            metrics::refused(label);
            true
        }
    }
}

/// The neighbor that connected.
fn admitted(
    stream: &TcpStream,
    remote: SocketAddr,
    neighbors: &Neighbors,
) -> Result<(Place, Transport), (&'static str, String)> {
    let found = neighbors.find(remote);
    let (place, transport) =
        found.ok_or_else(|| ("unknown", "no neighbor is configured with this address".into()))?;
    prepare_accepted(stream, place.address, &transport).map_err(|reason| ("far", reason))?;
    Ok((place, transport))
}
