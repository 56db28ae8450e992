//! Mutual TLS between two SVIDs, in memory.

use super::*;

/// One side of a handshake: whose certificate it has, whose root it trusts, whom it admits.
struct Side<'a> {
    own: &'a Files,
    trusts: &'a Files,
    path: &'a str,
    allow: tls::Allow,
}

impl Side<'_> {
    fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, TrustStore, tls::Allow) {
        let (chain, key) = self.own.svid(self.path);
        let key = PrivateKeyDer::Pkcs8(key.to_pkcs8().to_vec().into());
        (chain, key, TrustStore::from(self.trusts.bundle()), self.allow.clone())
    }
}

/// Runs a handshake in memory; gives the ID that the server saw, or who refused and why.
fn handshake(client: &Side<'_>, server: &Side<'_>) -> Result<String, (&'static str, String)> {
    let (chain, key, trust, allow) = client.parts();
    let config = tls::client_config(chain, key, trust, allow).unwrap();
    let name = rustls_pki_types::ServerName::try_from("unused").unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let (chain, key, trust, allow) = server.parts();
    let config = tls::server_config(chain, key, trust, allow).unwrap();
    let mut server = rustls::ServerConnection::new(Arc::new(config)).unwrap();
    for _ in 0..8 {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().map_err(|e| ("server", e.to_string()))?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().map_err(|e| ("client", e.to_string()))?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(tls::peer_id(server.peer_certificates()).unwrap().to_string())
}

#[test]
fn mutual_tls_between_two_svids() {
    let files = Files::new();
    let any = tls::Allow::TrustDomain(domain());
    let only = |path: &str| tls::Allow::Ids(vec![domain().member(path).unwrap()]);
    let side = |path, allow| Side { own: &files, trusts: &files, path, allow };
    let seen = handshake(&side("/client", only("/server")), &side("/server", any.clone())).unwrap();
    assert_eq!(seen, "spiffe://fabric.example/client");
    let (who, why) = handshake(&side("/client", only("/else")), &side("/server", any.clone())).unwrap_err();
    assert_eq!(who, "client");
    has(&why, &["spiffe://fabric.example/server"]);
    let (who, why) = handshake(&side("/client", any), &side("/server", only("/else"))).unwrap_err();
    assert_eq!(who, "server");
    has(&why, &["spiffe://fabric.example/client"]);
}

#[test]
fn mutual_tls_refuses_a_foreign_root_on_either_side() {
    let (files, foreign, allow) = (Files::new(), Files::new(), tls::Allow::TrustDomain(domain()));
    let ours = |path| Side { own: &files, trusts: &files, path, allow: allow.clone() };
    let intruder = |path| Side { own: &foreign, trusts: &files, path, allow: allow.clone() };
    let (who, why) = handshake(&intruder("/client"), &ours("/server")).unwrap_err();
    assert_eq!(who, "server");
    has(&why, &["another root"]);
    let (who, why) = handshake(&ours("/client"), &intruder("/server")).unwrap_err();
    assert_eq!(who, "client");
    has(&why, &["another root"]);
}
