//! Connections of a server that anybody may open and nobody need close: counted, and when there are too many the oldest goes.
//!
//! So idle ones take no descriptors from the rest of the daemon, and shut nobody out who has a question now.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::leash::Leash;

/// How many connections a server has at a time.
#[derive(Clone)]
pub(crate) struct Room {
    places: Arc<Semaphore>,
    /// The oldest first; each knows how to ask its connection to leave.
    open: Arc<Mutex<VecDeque<(u64, CancellationToken)>>>,
}

/// A connection in a [`Room`]: an error to its owner once it has to leave.
pub(crate) type Guest<S> = Leash<S, Place>;

/// A guest's place, free again when this is dropped.
pub(crate) struct Place {
    number: u64,
    room: Room,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    /// A room for `places` connections, at least one.
    pub(crate) fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places.max(1))), open: Arc::default() }
    }

    /// Lets a connection in; if there is no place, the oldest has to leave first.
    pub(crate) async fn admit<S>(&self, stream: S) -> Guest<S> {
        if self.places.available_permits() == 0
            && let Some((_, oldest)) = self.lock().pop_front()
        {
            oldest.cancel();
        }
        let permit = Arc::clone(&self.places).acquire_owned().await.expect("nobody closes this semaphore");
        let must_leave = CancellationToken::new();
        let mut open = self.lock();
        let number = open.back().map_or(0, |(last, _)| last.wrapping_add(1));
        open.push_back((number, must_leave.clone()));
        drop(open);
        let place = Place { number, room: self.clone(), _permit: permit };
        Leash::tie(stream, must_leave, "too many connections: the oldest is closed", place)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, CancellationToken)>> {
        // Each change is complete before anything can panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.lock().retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    async fn guest(room: &Room) -> (DuplexStream, Guest<DuplexStream>) {
        let (theirs, ours) = duplex(64);
        (theirs, room.admit(ours).await)
    }

    #[tokio::test]
    async fn the_oldest_leaves_and_a_place_that_is_left_is_free() {
        let room = Room::new(2);
        let (mut a, mut first) = guest(&room).await;
        let (mut b, mut second) = guest(&room).await;
        a.write_all(b"a").await.unwrap();
        assert_eq!(first.read_u8().await.unwrap(), b'a');

        // Asked to leave while it waits for a word.
        let waiting = tokio::spawn(async move { first.read_u8().await });
        tokio::task::yield_now().await;
        let (_c, third) = guest(&room).await;
        assert!(waiting.await.unwrap().is_err());

        drop(third);
        let (mut d, mut fourth) = guest(&room).await;
        for (theirs, ours) in [(&mut b, &mut second), (&mut d, &mut fourth)] {
            theirs.write_all(b"x").await.unwrap();
            assert_eq!(ours.read_u8().await.unwrap(), b'x');
        }
        drop((second, fourth));
        assert!(room.lock().is_empty());
    }
}
