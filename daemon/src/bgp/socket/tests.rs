//! The kernel does what the options promise, on loopback addresses.

use std::num::NonZeroU8;

use socket2::{Domain, Type};
use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::bgp::Reach;

fn password(text: &str) -> Password {
    Password::new(text.as_bytes()).unwrap()
}

/// A listener of this address that demands a password of 127.0.0.2 and ::1.
fn listener(address: &str, of: &str) -> (TcpListener, SocketAddr) {
    let address: SocketAddr = address.parse().unwrap();
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    if address.is_ipv6() {
        socket.set_only_v6(false).unwrap();
    }
    prepare_listening(&socket, address).unwrap();
    change_passwords(&socket, address, &Passwords::new(), &wanted(of)).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(8).unwrap();
    let listener = TcpListener::from_std(socket.into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, SocketAddr::new(address.ip(), port))
}

fn wanted(of: &str) -> Passwords {
    ["127.0.0.2/32", "::1/128"].map(|neighbor| (neighbor.parse().unwrap(), password(of))).into()
}

/// A socket of 127.0.0.2, or ::1, that signs with this password.
fn dialer(remote: SocketAddr, signed: Option<&str>, reach: Reach) -> TcpSocket {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    let transport = Transport { password: signed.map(password), reach, ..Transport::default() };
    prepare_dialing(&socket, remote.ip(), &transport).unwrap();
    let local = if remote.is_ipv6() { "[::1]:0" } else { "127.0.0.2:0" };
    socket.bind(&local.parse::<SocketAddr>().unwrap().into()).unwrap();
    TcpSocket::from_std_stream(socket.into())
}

/// The listener answers; one whose signature is wrong it does not even refuse.
async fn is_heard(remote: SocketAddr, signed: Option<&str>) -> bool {
    let connect = dialer(remote, signed, Reach::Any).connect(remote);
    tokio::time::timeout(std::time::Duration::from_millis(300), connect)
        .await
        .is_ok_and(|connected| connected.is_ok())
}

#[tokio::test]
async fn only_the_right_password_is_heard() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (_listener, remote) = listener(address, "secret");
        assert!(is_heard(remote, Some("secret")).await, "{address}");
        assert!(!is_heard(remote, Some("guessed")).await, "{address}");
        assert!(!is_heard(remote, None).await, "{address}");
    }
}

#[tokio::test]
async fn an_ipv6_listener_demands_it_of_ipv4_neighbors_too() {
    let (listener, address) = listener("[::]:0", "secret");
    let remote = SocketAddr::new("127.0.0.1".parse().unwrap(), address.port());
    assert!(is_heard(remote, Some("secret")).await);
    assert!(!is_heard(remote, None).await);
    change_passwords(&listener, address, &wanted("secret"), &wanted("other")).unwrap();
    assert!(is_heard(remote, Some("other")).await && !is_heard(remote, Some("secret")).await);
    change_passwords(&listener, address, &wanted("other"), &Passwords::new()).unwrap();
    assert!(is_heard(remote, None).await);
}

#[tokio::test]
async fn a_prefix_has_a_password_and_the_longest_one_counts() {
    let (listener, address) = listener("[::]:0", "near");
    let remote = SocketAddr::new("127.0.0.1".parse().unwrap(), address.port());
    let far = ("127.0.0.0/29".parse().unwrap(), password("far"));
    let both = wanted("near").into_iter().chain([far.clone()]).collect();
    change_passwords(&listener, address, &wanted("near"), &both).unwrap();
    assert!(is_heard(remote, Some("near")).await && !is_heard(remote, Some("far")).await);
    change_passwords(&listener, address, &both, &[far.clone()].into()).unwrap();
    assert!(is_heard(remote, Some("far")).await && !is_heard(remote, None).await);
    let elsewhere = [("127.0.0.8/29".parse().unwrap(), far.1.clone())].into();
    change_passwords(&listener, address, &[far].into(), &elsewhere).unwrap();
    assert!(is_heard(remote, None).await);
}

#[tokio::test]
async fn what_comes_from_far_is_not_read() {
    let (listener, remote) = listener("127.0.0.1:0", "secret");
    let secured = |hops| {
        let reach = Reach::Secured(NonZeroU8::new(hops).unwrap());
        Transport { reach, ..Transport::default() }
    };
    // TTL, hops allowed, heard
    let table = [(255, 1, true), (254, 1, false), (254, 2, true), (64, 100, false), (64, 192, true)];
    for (ttl, hops, heard) in table {
        let reach = Reach::Ttl(NonZeroU8::new(ttl).unwrap());
        let dialer = dialer(remote, Some("secret"), reach).connect(remote).await.unwrap();
        let (stream, from) = listener.accept().await.unwrap();
        let prepared = prepare_accepted(&stream, from.ip(), &secured(hops));
        assert_eq!(prepared.is_ok(), heard, "TTL {ttl}, {hops} hops: {prepared:?}");
        drop(dialer);
    }
}
