use isthmus_tunnel::{Identity, table::Underlay, x25519::StaticSecret};

use super::*;
use crate::tunnel::{metrics, offload::Offloads, snapshot::Snapshot, tun};

fn config() -> Config {
    Config {
        interface: "lo".into(),
        listen: 0,
        private_key_file: "/nonexistent".into(),
        private_key: None,
        addresses: vec![],
        mtu: 1420,
        workers: None,
        offloads_off: vec![],
        peers: vec![],
    }
}

/// With a thread that only waits for the engine to stop, and tells that in the channel.
fn control() -> (Control, CancellationToken, watch::Receiver<bool>, std::sync::mpsc::Receiver<()>) {
    let (attention, board, shutdown) = (Arc::default(), Board::new(), CancellationToken::new());
    let snapshot = Snapshot::new(vec![], &[], Underlay::default());
    let offloads = Offloads::new(|_| false);
    let engine = Engine::new(snapshot, vec![], tun::tests::none(), offloads, Arc::clone(&attention));
    let engine = Arc::new(engine.unwrap());
    let (told, tells) = std::sync::mpsc::channel();
    let thread = {
        let engine = Arc::clone(&engine);
        std::thread::spawn(move || {
            while engine.waiter(crate::tunnel::waiter::Set::new()?)?.wait()? {}
            told.send(()).unwrap();
            Ok(())
        })
    };
    let identity = Arc::new(Identity::new(StaticSecret::from([1; 32])));
    let (done, is_done) = watch::channel(false);
    let control = Control {
        config: config(),
        watcher: board.subscribe(),
        not_before: Instant::now(),
        board,
        link: Link::find("lo").unwrap(),
        peers: Peers::new(identity, Arc::clone(&attention)),
        attention,
        threads: vec![thread],
        ended: Arc::default(),
        requests: mpsc::channel(1).1,
        stop: shutdown.child_token(),
        shutdown: shutdown.clone(),
        done,
        _metrics: metrics::publish(&engine),
        engine,
    };
    (control, shutdown, is_done, tells)
}

#[tokio::test]
async fn panic_ends_the_packet_threads_and_the_daemon() {
    let (control, shutdown, mut done, tells) = control();
    let task = tokio::spawn(async move {
        let _control = control;
        panic!("a defect");
    });
    assert!(task.await.unwrap_err().is_panic());
    assert!(shutdown.is_cancelled());
    tells.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(done.wait_for(|done| *done).await.is_err());
}

#[tokio::test]
async fn everything_is_gone_when_it_is_done() {
    let (control, shutdown, mut done, tells) = control();
    let engine = Arc::downgrade(&control.engine);
    control.stop.cancel();
    tokio::spawn(control.run());
    done.wait_for(|done| *done).await.unwrap();
    assert!(engine.upgrade().is_none());
    assert!(tells.try_recv().is_ok() && !shutdown.is_cancelled());
}
