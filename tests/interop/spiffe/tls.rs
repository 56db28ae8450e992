//! Mutual TLS between our own configuration of rustls and a foreign library's, both ways, with SVIDs that both got from the same node.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use isthmus_lab::{issuer::API, node::unix_channel};
use isthmus_pki::{Bundle, SpiffeId, TrustStore, bundle::certificates};
use isthmus_proto::workload::{
    X509svid, X509svidRequest, spiffe_workload_api_client::SpiffeWorkloadApiClient,
};
use isthmusd::identity::tls::{Allow, client_config, peer_id, server_config};
use rustls::{ClientConnection, ServerConnection, Stream};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tonic::{Request, metadata::MetadataValue};

use crate::{program::Language, rig::Rig};

const LIMIT: Duration = Duration::from_secs(20);

/// What we got from the Workload API.
struct Svid(X509svid);

impl Svid {
    fn fetch(rig: &Rig) -> Self {
        let socket = rig.socket();
        let fetch = || async move {
            let mut client = SpiffeWorkloadApiClient::new(unix_channel(&socket).unwrap());
            let mut request = Request::new(X509svidRequest {});
            request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
            let mut stream = client.fetch_x509svid(request).await.unwrap().into_inner();
            stream.message().await.unwrap().unwrap().svids.remove(0)
        };
        Self(rig.netns().block_on(fetch).unwrap())
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.x509_svid_key.clone()).into()
    }

    fn trust(&self) -> TrustStore {
        Bundle::parse(&self.0.bundle).unwrap().into()
    }

    fn client(&self) -> ClientConnection {
        let chain = certificates(&self.0.x509_svid).unwrap();
        let allow = Allow::Ids(vec![SpiffeId::parse(API).unwrap()]);
        let config = client_config(chain, self.key(), self.trust(), allow).unwrap();
        ClientConnection::new(Arc::new(config), "unused.example".try_into().unwrap()).unwrap()
    }

    fn server(&self) -> ServerConnection {
        let chain = certificates(&self.0.x509_svid).unwrap();
        let allow = Allow::Ids(vec![SpiffeId::parse(API).unwrap()]);
        let config = server_config(chain, self.key(), self.trust(), allow).unwrap();
        ServerConnection::new(Arc::new(config)).unwrap()
    }
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Their server tells us who it takes us for.
pub(crate) fn we_are_the_client(rig: &Rig, language: Language) {
    let svid = Svid::fetch(rig);
    let mut server = rig.program(language, &["serve"]);
    let address = server.line()["address"].as_str().unwrap().to_owned();
    let said = rig.netns().run(|| {
        let (mut socket, mut connection) = (patient(TcpStream::connect(&address).unwrap()), svid.client());
        let mut stream = Stream::new(&mut connection, &mut socket);
        stream.write_all(b"\0").unwrap();
        let mut said = [0; API.len()];
        stream.read_exact(&mut said).unwrap();
        String::from_utf8(said.to_vec()).unwrap()
    });
    assert_eq!(said.unwrap(), API);
    assert_eq!(server.line()["client"], API);
}

/// We tell their client who we take it for.
pub(crate) fn we_are_the_server(rig: &Rig, language: Language) {
    let svid = Svid::fetch(rig);
    let listener = rig.netns().run(|| TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut client = rig.program(language, &["dial", &address, API]);
    let (mut socket, mut connection) = (patient(listener.accept().unwrap().0), svid.server());
    let mut stream = Stream::new(&mut connection, &mut socket);
    stream.read_exact(&mut [0]).unwrap();
    let who = peer_id(stream.conn.peer_certificates()).unwrap().to_string();
    stream.write_all(who.as_bytes()).unwrap();
    connection.send_close_notify();
    connection.complete_io(&mut socket).unwrap();
    assert_eq!(client.line()["server_said"], API);
}
