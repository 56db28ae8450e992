//! Connections of the issuance service: what a stranger may cost is decided here, before anything is computed for him.
//!
//! In this order: sources beyond their rate are dropped at once, handshakes under way are counted, one that is slow is cut, those who
//! showed no certificate have few places and half a minute, those who did have many and stay for as long as they are believed.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use isthmus_pki::verify::Purpose;
use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::rate::Rate;
use crate::{
    connections::{Guest, Room},
    identity::{
        own::Own,
        standing::Live,
        tls::{self, Allow, Check, Guarded},
    },
};

/// Handshakes that one source may begin: so many a second, and so many at once after a rest.
const HANDSHAKES: (u32, u32) = (20, 100);
/// Handshakes under way, of all sources.
const UNDER_WAY: usize = 64;
/// How long a handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Places for those who showed a certificate, and for those who didn't.
const PLACES: (usize, usize) = (4096, 128);
/// How long one without a certificate may stay: an enrolment is one call.
const STRANGER_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait when accepting fails, out of descriptors most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(super) struct Peer {
    /// Where it comes from.
    pub(super) address: SocketAddr,
    /// What it showed; `None`: no certificate.
    pub(super) check: Option<Arc<Check>>,
}

/// A connection whose handshake is over.
pub(super) type Connection = Guarded<Guest<Tagged>>;

/// A TLS stream with what is known of its peer.
pub(super) struct Tagged {
    stream: TlsStream<TcpStream>,
    peer: Peer,
}

/// Accepts in a task of its own until the stream is dropped; never fails.
pub(super) fn incoming(listener: TcpListener, live: Live) -> ReceiverStream<io::Result<Connection>> {
    let (sender, connections) = mpsc::channel(16);
    tokio::spawn(async move {
        let gone = sender.clone();
        let mut door = Door::new(live, sender);
        tokio::select! {
            () = door.accept(&listener) => {}
            () = gone.closed() => {}
        }
    });
    ReceiverStream::new(connections)
}

struct Door {
    live: Live,
    connections: mpsc::Sender<io::Result<Connection>>,
    rate: Rate,
    slots: Arc<Semaphore>,
    known: Room,
    strangers: Room,
    /// What a handshake is made with, and the SVID that it was made from.
    acceptor: Option<(Arc<Own>, TlsAcceptor)>,
}

impl Door {
    fn new(live: Live, connections: mpsc::Sender<io::Result<Connection>>) -> Self {
        Self {
            live,
            connections,
            rate: Rate::new(HANDSHAKES.0, HANDSHAKES.1, Instant::now()),
            slots: Arc::new(Semaphore::new(UNDER_WAY)),
            known: Room::new(PLACES.0),
            strangers: Room::new(PLACES.1),
            acceptor: None,
        }
    }

    async fn accept(&mut self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    if let Err(reason) = self.admit(stream, address) {
                        refused(reason);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "issuance: accept failed; trying again in a moment");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, address: SocketAddr) -> Result<(), &'static str> {
        if !self.rate.allow(address.ip(), Instant::now()) {
            return Err("rate");
        }
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| "busy")?;
        let (own, acceptor) = self.acceptor().ok_or("no_svid")?;
        let handshake = Handshake {
            address,
            acceptor,
            own_end: own.life.not_after,
            live: self.live.clone(),
            known: self.known.clone(),
            strangers: self.strangers.clone(),
        };
        let connections = self.connections.clone();
        tokio::spawn(async move {
            match handshake.run(stream, slot).await {
                // An error means that the server is gone.
                Ok(connection) => _ = connections.send(Ok(connection)).await,
                Err(reason) => refused(reason),
            }
        });
        Ok(())
    }

    /// Made anew when the SVID was renewed; `None`: there is none that anybody would believe.
    fn acceptor(&mut self) -> Option<(Arc<Own>, TlsAcceptor)> {
        let standing = self.live.borrow().clone()?;
        let own = standing.own?;
        if let Some((of, acceptor)) = &self.acceptor
            && Arc::ptr_eq(of, &own)
        {
            return Some((own, acceptor.clone()));
        }
        let allow = Allow::TrustDomain(standing.trust.domain().clone());
        let config = tls::node_server(&own, self.live.clone(), allow)
            .inspect_err(|error| tracing::error!(%error, "the node's SVID is of no use to a TLS server"))
            .ok()?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        self.acceptor = Some((own.clone(), acceptor.clone()));
        Some((own, acceptor))
    }
}

fn refused(reason: &'static str) {
    metrics::counter!("isthmus_issuance_connections_refused_total", "reason" => reason).increment(1);
}

struct Handshake {
    address: SocketAddr,
    acceptor: TlsAcceptor,
    own_end: i64,
    live: Live,
    known: Room,
    strangers: Room,
}

impl Handshake {
    async fn run(self, stream: TcpStream, slot: OwnedSemaphorePermit) -> Result<Connection, &'static str> {
        // Answers are small: waiting for more to send would only delay them. A refusal costs nothing but that delay.
        let _ = stream.set_nodelay(true);
        let stream = timeout(HANDSHAKE_LIMIT, self.acceptor.accept(stream)).await;
        let stream = stream.map_err(|_| "slow")?.map_err(|error| {
            tracing::debug!(peer = %self.address, %error, "issuance: handshake failed");
            "handshake"
        })?;
        drop(slot);
        let chain: Option<Vec<CertificateDer<'static>>> = stream
            .get_ref()
            .1
            .peer_certificates()
            .map(|list| list.iter().map(|c| c.clone().into_owned()).collect());
        Ok(match chain {
            Some(chain) => self.known(stream, chain).await,
            None => self.stranger(stream).await,
        })
    }

    async fn known(self, stream: TlsStream<TcpStream>, chain: Vec<CertificateDer<'static>>) -> Connection {
        let domain = self.live.borrow().as_ref().map(|standing| standing.trust.domain().clone());
        // Without an identity of our own nobody is welcome, and the check says so at once.
        let allow = domain.map_or(Allow::Ids(Vec::new()), Allow::TrustDomain);
        let check = Check::new(self.live, chain, Purpose::Client, allow, Some(self.own_end));
        let check = Arc::new(check);
        let peer = Peer { address: self.address, check: Some(check.clone()) };
        Guarded::new(self.known.admit(Tagged { stream, peer }).await, check)
    }

    async fn stranger(self, stream: TlsStream<TcpStream>) -> Connection {
        let peer = Peer { address: self.address, check: None };
        let guest = self.strangers.admit(Tagged { stream, peer }).await;
        Guarded::until(guest, tokio::time::sleep(STRANGER_LIMIT))
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.get_ref().get_ref().peer.clone()
    }
}

mod io_of_tagged {
    //! Reading and writing pass through.

    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::Tagged;

    impl AsyncRead for Tagged {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Tagged {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }
}
