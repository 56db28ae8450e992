//! Where SVIDs are made: on threads that may block, a bounded number at a time.
//!
//! Signing takes a fraction of a millisecond of a processor, and writing down what was issued takes as long as the disk takes. Neither may
//! happen on the threads that serve connections: a disk that hangs would stop every stream, and the tunnels' control tasks beside them.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tonic::Status;

/// Most pieces of work at a time. More than processors, since those that wait for the disk need none; few enough that ten thousand
/// callers are no ten thousand threads.
const PLACES: usize = 16;

/// Clones share the places.
#[derive(Clone)]
pub(super) struct Workshop(Arc<Semaphore>);

impl Default for Workshop {
    fn default() -> Self {
        Self::new(PLACES)
    }
}

impl Workshop {
    fn new(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }

    /// Runs `work` where it may block, once there is a place. First come, first served. Whoever stops waiting before it began leaves the
    /// queue; work that has begun is finished.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let place = Arc::clone(&self.0).acquire_owned().await.expect("nobody closes this semaphore");
        let work = move || {
            let _place = place;
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| {
            Status::internal("issuing has failed in an unexpected way; the daemon's log says how")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use super::*;

    #[tokio::test]
    async fn work_that_hangs_stops_nobody_but_those_who_wait_for_a_place() {
        let workshop = Workshop::new(2);
        let (release, hang) = mpsc::channel::<()>();
        let stuck = tokio::spawn({
            let workshop = workshop.clone();
            async move { workshop.run(move || hang.recv().is_ok()).await }
        });
        // This runtime has a single thread: it goes on, and so does other work.
        assert_eq!(workshop.run(|| 7).await.unwrap(), 7);
        release.send(()).unwrap();
        assert!(stuck.await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn no_more_at_a_time_than_places() {
        let (workshop, now, most) =
            (Workshop::new(3), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..32)
            .map(|_| {
                let (workshop, now, most) = (workshop.clone(), now.clone(), most.clone());
                tokio::spawn(async move {
                    let work = move || {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    };
                    workshop.run(work).await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_that_call_alone() {
        let workshop = Workshop::new(1);
        let broken = workshop.run(|| -> u8 { panic!("a bug") }).await;
        assert_eq!(broken.unwrap_err().code(), tonic::Code::Internal);
        assert_eq!(workshop.run(|| 1).await.unwrap(), 1);
    }
}
