//! Somebody with a key that is not his, on the same network.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use isthmus_lab::{mesh, netns::Netns};
use isthmus_pki::{
    Authority, Bundle, Curve, Key, Profile, Serial, TrustDomain, TrustStore, bundle::certificates,
};
use isthmus_proto::issuance::{Report, SyncRequest, issuance_client::IssuanceClient};
use isthmusd::identity::tls::{self, Allow};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use super::fabric::{Site, TD};

/// A forged certificate with its key.
type Forged = (Vec<CertificateDer<'static>>, Key);

pub(super) struct Thief {
    netns: Netns,
    ca: Authority,
    bundle: Bundle,
}

fn serial() -> Serial {
    Serial::from_random(rand::random())
}

impl Thief {
    /// With the key of a site's CA.
    pub(super) fn with_site_ca(certificate: &[u8], key: &[u8], root: &[u8]) -> Self {
        let certificate = certificates(certificate).unwrap().swap_remove(0);
        let ca = Authority::load(certificate, Key::from_pem(key, None).unwrap()).unwrap();
        Self { netns: network(), ca, bundle: Bundle::parse(root).unwrap() }
    }

    /// With the key of the root: he makes himself a CA of whichever site.
    pub(super) fn with_root(root: &Authority, site: &str) -> Self {
        let key = Key::generate(Curve::P256).unwrap();
        let profile = Profile::SiteCa { site: site.into(), lifetime: time::Duration::days(1) };
        let issued = root.issue(&profile, &key.public(), serial(), OffsetDateTime::now_utc()).unwrap();
        let ca = Authority::load(issued.certificate, key).unwrap();
        Self { netns: network(), ca, bundle: Bundle::parse(root.certificate()).unwrap() }
    }

    /// His CA.
    pub(super) fn ca(&self) -> &Authority {
        &self.ca
    }

    /// Believes this root from now on, as anybody can who has its certificate.
    pub(super) fn learn(&mut self, root: &[u8]) {
        self.bundle = Bundle::parse(root).unwrap();
    }

    /// A node of the site that never existed.
    pub(super) fn forge(&self, path: &str) -> Forged {
        let id = TrustDomain::parse(TD).unwrap().member(path).unwrap();
        let profile = Profile::Svid { id, dns_names: Vec::new(), lifetime: time::Duration::hours(1) };
        let key = Key::generate(Curve::P256).unwrap();
        let leaf = self.ca.issue(&profile, &key.public(), serial(), OffsetDateTime::now_utc()).unwrap();
        (vec![leaf.certificate, self.ca.certificate().clone()], key)
    }

    /// As node gw9 of that site, on a connection to its issuer that he holds for as long as he is let.
    pub(super) fn call(&self, site: &Site) -> Call {
        self.call_from(site, site)
    }

    /// As node gw9 of one site at the issuer of another, as a peer of the fabric.
    pub(super) fn call_from(&self, home: &Site, site: &Site) -> Call {
        let forged = self.forge(&format!("/site/{}/node/gw9", home.name));
        let (netns, trust) = (self.netns.clone(), TrustStore::from(self.bundle.clone()));
        let allow = Allow::NodesOf(TrustDomain::parse(TD).unwrap(), site.name.into());
        let address = SocketAddr::new(mesh::outer(site.issuer)[0], 51820);
        let (sender, said) = channel();
        thread::spawn(move || {
            let call = || hold(address, forged, trust, allow, sender);
            netns.block_on(call).unwrap();
        });
        Call(said)
    }
}

fn network() -> Netns {
    let netns = mesh::stranger("thief").unwrap();
    netns.add_address("eth0", "192.0.2.9/24".parse().unwrap()).unwrap();
    netns
}

/// A call under way.
pub(super) struct Call(Receiver<Result<(), String>>);

impl Call {
    /// He is answered.
    pub(super) fn is_served(&self) {
        let answer = self.0.recv_timeout(Duration::from_secs(10)).expect("an answer");
        assert_eq!(answer, Ok(()), "the thief is served before anybody knows of him");
    }

    /// He is not, or no more: why.
    pub(super) fn ends(&self, limit: Duration) -> String {
        loop {
            if let Err(reason) = self.0.recv_timeout(limit).expect("the end of a thief's connection") {
                return reason;
            }
        }
    }

    /// Nothing ended it so far.
    pub(super) fn is_open(&self) -> bool {
        self.0.try_iter().all(|said| said.is_ok())
    }
}

async fn hold(
    address: SocketAddr,
    forged: Forged,
    trust: TrustStore,
    allow: Allow,
    said: Sender<Result<(), String>>,
) {
    let mut version = Vec::new();
    let mut client = match dial(address, forged, trust, allow).await {
        Ok(channel) => IssuanceClient::new(channel),
        Err(reason) => return drop(said.send(Err(reason))),
    };
    loop {
        // A node that has heard nothing: rotations wait for it.
        let report = Some(Report { version: "1".into(), ..Report::default() });
        match client.sync(SyncRequest { report, known_version: version }).await {
            Ok(answer) => version = answer.into_inner().version,
            Err(status) => return drop(said.send(Err(format!("{status:?}")))),
        }
        if said.send(Ok(())).is_err() {
            return;
        }
    }
}

async fn dial(
    address: SocketAddr,
    (chain, key): Forged,
    trust: TrustStore,
    allow: Allow,
) -> Result<Channel, String> {
    let key: PrivateKeyDer<'static> = PrivatePkcs8KeyDer::from(key.to_pkcs8().to_vec()).into();
    let mut config = tls::client_config(chain, key, trust, allow).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let connector = tower::service_fn(move |_: Uri| {
        let config = config.clone();
        async move {
            let tcp = TcpStream::connect(address).await?;
            let name = ServerName::try_from("issuer").unwrap();
            TlsConnector::from(config).connect(name, tcp).await.map(TokioIo::new)
        }
    });
    let channel = Endpoint::from_static("http://issuer").connect_with_connector(connector).await;
    channel.map_err(|error| format!("{error:?}"))
}
