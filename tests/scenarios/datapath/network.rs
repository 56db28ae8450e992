//! Networks that glue, double, swap, hold back and lose datagrams: what comes out of the tunnel is right.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::ensure;
use isthmus_lab::{
    mesh::{Family, Mesh, overlay},
    probe::MarkedSocket,
    relay::Passing,
    sandbox, wait,
};

use super::common::{LIMIT, all_is_well, at, clear, hello, relayed};

fn is_data(passing: &Passing) -> bool {
    // Longer than a keepalive.
    passing.bytes.first() == Some(&4) && passing.bytes.len() > 32
}

#[test]
fn glued_datagrams_are_dropped_and_counted() {
    sandbox::run_with_bins("network::glued_datagrams_are_dropped_and_counted", |bins| {
        for outer in Family::BOTH {
            let glue = Arc::new(AtomicUsize::new(1));
            let treat = {
                let (glue, mut held) = (Arc::clone(&glue), Vec::new());
                move |passing: Passing| {
                    if !is_data(&passing) || passing.from != 0 {
                        return vec![passing];
                    }
                    held.push(passing.bytes);
                    if held.len() < glue.load(Ordering::Relaxed) {
                        return vec![];
                    }
                    vec![Passing { bytes: held.drain(..).flatten().collect(), ..passing }]
                }
            };
            let (mesh, relay) = relayed(bins, outer, treat);
            hello(mesh.node(1), mesh.node(2), overlay(2)[0]).unwrap();
            for (together, length) in [(2, 50), (3, 50), (2, 1300), (3, 1300)] {
                glue.store(together, Ordering::Relaxed);
                is_refused_whole(&mesh, together, length);
                glue.store(1, Ordering::Relaxed);
                hello(mesh.node(1), mesh.node(2), overlay(2)[1]).unwrap();
            }
            all_is_well(&mesh, 500_000);
            drop(relay);
            clear(mesh, &["relay"]);
        }
    });
}

fn is_refused_whole(mesh: &Mesh, together: usize, length: usize) {
    let failed = || mesh.node(2).drops("gw1", "decrypt_failed");
    let before = failed().unwrap();
    let [from, to] = [1, 2].map(|n| MarkedSocket::bind(mesh.node(n).netns(), at(overlay(n)[0], 74)).unwrap());
    for _ in 0..together {
        from.send(at(overlay(2)[0], 74), &vec![7; length], 0).unwrap();
    }
    wait::until("the count of what can't be opened", LIMIT, || {
        ensure!(failed()? == before + 1, "{} of 1", failed()? - before);
        Ok(())
    })
    .unwrap();
    assert!(to.try_receive().unwrap().is_none());
}

/// What a bad day does to every so many datagrams.
struct BadDay {
    count: u32,
    held: Vec<(u32, Passing)>,
    doubled: Arc<AtomicU64>,
}

impl BadDay {
    /// Every 7th comes twice, every 5th is overtaken by the next one, every 31st by the next twenty, and comes twice then.
    fn treat(&mut self, passing: Passing) -> Vec<Passing> {
        self.count = self.count.wrapping_add(1);
        let mut now = Vec::new();
        let due = self.count;
        let hold = |after| (due.wrapping_add(after), passing.clone());
        if !is_data(&passing) {
            now.push(passing);
        } else if due.is_multiple_of(31) {
            self.held.push(hold(20));
            self.held.push(hold(20));
            self.doubled.fetch_add(1, Ordering::Relaxed);
        } else if due.is_multiple_of(5) {
            self.held.push(hold(1));
        } else {
            let twice = due.is_multiple_of(7);
            self.doubled.fetch_add(u64::from(twice), Ordering::Relaxed);
            now.extend(vec![passing; 1 + usize::from(twice)]);
        }
        now.extend(self.held.extract_if(.., |(at, _)| *at <= due).map(|(_, passing)| passing));
        now
    }
}

#[test]
fn doubled_and_swapped_datagrams_do_no_harm() {
    sandbox::run_with_bins("network::doubled_and_swapped_datagrams_do_no_harm", |bins| {
        for outer in Family::BOTH {
            let doubled = Arc::new(AtomicU64::new(0));
            let mut day = BadDay { count: 0, held: Vec::new(), doubled: Arc::clone(&doubled) };
            let (mesh, relay) = relayed(bins, outer, move |passing| day.treat(passing));
            all_is_well(&mesh, 1_000_000);
            each_comes_once(&mesh);
            drop(relay);
            let replays =
                [(1, "gw2"), (2, "gw1")].map(|(n, peer)| mesh.node(n).drops(peer, "replayed").unwrap());
            let doubled = doubled.load(Ordering::Relaxed);
            // Some may have been lost on the way.
            let all = replays.iter().sum::<u64>();
            assert!(doubled > 100 && all > doubled / 2 && all <= doubled, "{replays:?} of {doubled}");
            assert_eq!(mesh.node(2).drops("gw1", "decrypt_failed").unwrap(), 0);
            clear(mesh, &["relay"]);
        }
    });
}

/// Numbered datagrams: each at most once, most of them at all.
fn each_comes_once(mesh: &Mesh) {
    const COUNT: u32 = 1000;
    for family in 0..2 {
        let [from, to] =
            [1, 2].map(|n| MarkedSocket::bind(mesh.node(n).netns(), at(overlay(n)[family], 75)).unwrap());
        let mut seen = vec![0; usize::try_from(COUNT).unwrap()];
        for number in 0..COUNT {
            from.send(at(overlay(2)[family], 75), &number.to_be_bytes(), 0).unwrap();
            let arrived = std::iter::from_fn(|| to.try_receive().unwrap());
            arrived.for_each(|marked| note(&mut seen, &marked.bytes));
            // No queue on the way need hold more than a few.
            if number.is_multiple_of(10) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        while let Ok(marked) = to.receive(Duration::from_secs(1)) {
            note(&mut seen, &marked.bytes);
        }
        assert!(seen.iter().all(|times| *times <= 1), "some came twice");
        assert!(seen.iter().sum::<u32>() > COUNT / 2, "{} of {COUNT}", seen.iter().sum::<u32>());
    }
}

fn note(seen: &mut [u32], bytes: &[u8]) {
    let number = u32::from_be_bytes(bytes.try_into().unwrap());
    seen[usize::try_from(number).unwrap()] += 1;
}

#[test]
fn bulk_data_is_whole_where_one_in_a_hundred_is_lost() {
    sandbox::run_with_bins("network::bulk_data_is_whole_where_one_in_a_hundred_is_lost", |bins| {
        for outer in Family::BOTH {
            let (lossy, lost) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
            let treat = {
                let (lossy, lost) = (Arc::clone(&lossy), Arc::clone(&lost));
                move |passing: Passing| {
                    let loses =
                        lossy.load(Ordering::Relaxed) && is_data(&passing) && rand::random::<f64>() < 0.01;
                    lost.fetch_add(u64::from(loses), Ordering::Relaxed);
                    if loses { vec![] } else { vec![passing] }
                }
            };
            let (mesh, relay) = relayed(bins, outer, treat);
            all_is_well(&mesh, 3_000_000);
            assert!(lost.load(Ordering::Relaxed) > 20, "{lost:?}");
            each_comes_once(&mesh);
            lossy.store(false, Ordering::Relaxed);
            all_is_well(&mesh, 100_000);
            drop(relay);
            clear(mesh, &["relay"]);
        }
    });
}
