//! From datagrams to inner packets.

use std::{net::IpAddr, sync::Arc};

use isthmus_aead::{LANES, Packet, TAG};

use super::{
    Peer,
    lease::Lease,
    probing::{self, Answers, Arrived},
    state::{Judge, State},
};
use crate::{
    buffer::{Datagram, Opened, Outbox, OuterPath},
    clock::Now,
    counters::{Drop, Tally},
    ecn::Ecn,
    noise::message::{HEADER, Message},
    session::Session,
};

/// A batch on its way in. Data of one session, one behind the other, makes a run: the session is looked up once, the messages are
/// decrypted without any lock, and all that follows from them is noted at the end of the run.
pub(super) struct Opening<'p, 'a, F> {
    peer: &'p Peer,
    judge: Judge<F>,
    now: Now,
    out: &'p mut Outbox,
    inbox: &'p mut Vec<Opened<'a>>,
    /// The receiver index of the run, and its session if there is one.
    session: Option<(u32, Option<Arc<Session>>)>,
    /// Messages of the run that are not decrypted yet, and where each came from.
    sealed: Vec<Packet<'a>>,
    origins: Vec<(OuterPath, Ecn)>,
    /// The authentic messages of the run; what they held are the last packets of the inbox.
    marks: Vec<Mark>,
    /// The path messages of the run.
    path_messages: Vec<Arrived>,
    /// Something is due earlier than before.
    pub(super) earlier: bool,
}

/// An authentic message that may be a replay.
struct Mark {
    counter: u64,
    path: OuterPath,
}

impl<'p, 'a, F: Fn(IpAddr) -> bool> Opening<'p, 'a, F> {
    pub(super) fn new(
        peer: &'p Peer,
        captures: F,
        now: Now,
        out: &'p mut Outbox,
        inbox: &'p mut Vec<Opened<'a>>,
    ) -> Self {
        let judge = Judge::new(captures);
        Self {
            peer,
            judge,
            now,
            out,
            inbox,
            session: None,
            sealed: Vec::new(),
            origins: Vec::new(),
            marks: Vec::new(),
            path_messages: Vec::new(),
            earlier: false,
        }
    }

    pub(super) fn take(&mut self, datagram: Datagram<'a>) {
        let outcome = match Message::parse(datagram.bytes) {
            None => Err(Drop::Malformed),
            Some(Message::Data { receiver, counter }) => self.data(datagram, receiver, counter),
            Some(message) => {
                self.commit();
                self.session = None;
                self.shake(message, datagram.path)
            }
        };
        if let Err(reason) = outcome {
            self.peer.counters.drops.add(reason, 1);
        }
    }

    fn data(&mut self, datagram: Datagram<'a>, receiver: u32, counter: u64) -> Result<(), Drop> {
        if self.session.as_ref().is_none_or(|(index, _)| *index != receiver) {
            self.commit();
            let found = self.peer.lock(self.now).keyring.find(receiver, self.now.instant).cloned();
            self.session = Some((receiver, found));
        }
        let Some((_, Some(session))) = &self.session else { return Err(Drop::UnknownIndex) };
        if !session.may_accept(counter) {
            return Err(Drop::Replayed);
        }
        let Datagram { bytes, path, ecn } = datagram;
        let bytes = bytes.get_mut(HEADER..).ok_or(Drop::Malformed)?;
        self.sealed.push(Packet::new(counter, bytes));
        self.origins.push((path, ecn));
        if self.sealed.len() >= LANES {
            self.decrypt();
        }
        Ok(())
    }

    /// Decrypts what there is of the run; what is authentic goes into the inbox, in the order in which it came.
    fn decrypt(&mut self) {
        let Some((_, Some(session))) = &self.session else { return };
        session.open(&mut self.sealed);
        let mut failed = 0;
        for (Packet { counter, bytes, ok }, (path, ecn)) in self.sealed.drain(..).zip(self.origins.drain(..))
        {
            match bytes.split_last_chunk_mut::<TAG>() {
                Some((bytes, _)) if ok => {
                    self.inbox.push(Opened { bytes, ecn });
                    self.marks.push(Mark { counter, path });
                }
                _ => failed += 1,
            }
        }
        self.peer.counters.drops.add(Drop::DecryptFailed, failed);
    }

    /// Ends the run: decrypts what is left of it, weeds out replays, keepalives and path messages, and notes what remains.
    pub(super) fn commit(&mut self) {
        self.decrypt();
        let Some((_, Some(session))) = &self.session else { return };
        if self.marks.is_empty() {
            return;
        }
        let session = Arc::clone(session);
        let tally = self.weed(&session);
        if self.marks.is_empty() {
            return;
        }
        tally.flush(&self.peer.counters.received_packets, &self.peer.counters.received_bytes);
        let (lease, answers) = self.note(&session, tally.packets > 0);
        self.send_staged(lease);
        answers.send(self.out);
    }

    /// Tells the peer what came; the right to send what waited for it, and what there is to answer.
    fn note(&mut self, session: &Arc<Session>, data: bool) -> (Option<Lease>, Answers) {
        let mut state = self.peer.lock(self.now);
        for mark in self.marks.drain(..) {
            state.follow(mark.path, &mut self.judge);
        }
        state.note_path(self.now.instant);
        let lease = state.received(session, data, self.now, self.out);
        if lease.is_some() {
            state.timers.data_sent(self.now.instant);
        }
        let answers = state.hear(&self.path_messages, self.now.instant);
        self.path_messages.clear();
        self.earlier |= state.is_earlier(self.now.instant);
        (lease, answers)
    }

    /// Leaves fresh messages in `marks` and fresh packets in the inbox, in order.
    fn weed(&mut self, session: &Session) -> Tally {
        let (mut tally, mut marker) = (Tally::default(), session.marker());
        let (start, mut replays, mut malformed) = (self.inbox.len() - self.marks.len(), 0, 0);
        let (mut kept, mut read) = (start, start);
        self.marks.retain(|mark| {
            let fresh = marker.mark(mark.counter);
            replays += u64::from(!fresh);
            match self.inbox.get(read).filter(|_| fresh) {
                Some(opened) if probing::is_path_message(opened.bytes) => match probing::read(opened.bytes) {
                    Ok(message) => self.path_messages.push(message),
                    Err(_) => malformed += 1,
                },
                Some(opened) if !opened.bytes.is_empty() => {
                    tally.add(inner_length(opened));
                    self.inbox.swap(kept, read);
                    kept += 1;
                }
                _ => {}
            }
            read += 1;
            fresh
        });
        self.inbox.truncate(kept);
        self.peer.counters.drops.add(Drop::Replayed, replays);
        self.peer.counters.drops.add(Drop::Malformed, malformed);
        tally
    }

    /// Takes a message that is no data.
    fn shake(&mut self, message: Message<'_>, path: OuterPath) -> Result<(), Drop> {
        let mut state = self.peer.lock(self.now);
        let lease = match message {
            Message::Initiation(message) => {
                let to = state.answer_to(path, &mut self.judge);
                state.answer(message, to, self.now, self.out)?;
                // An old initiation can be replayed from anywhere after a restart. Who can answer ours is followed by its first data.
                if state.path.is_none() {
                    state.follow(path, &mut self.judge);
                }
                // Not a sign of life: a peer that only ever calls shows that nothing of ours arrives.
                state.timers.received(self.now.instant);
                None
            }
            Message::Response(message) => {
                state.conclude(message, self.now)?;
                state.follow(path, &mut self.judge);
                self.concluded(&mut state)
            }
            // Tells nothing about where the peer is: it is authenticated by what we sent, and anybody who saw that can forge it.
            Message::CookieReply(message) => return state.take_cookie(message, self.now),
            Message::Data { .. } => None,
        };
        self.earlier |= state.is_earlier(self.now.instant);
        drop(state);
        self.send_staged(lease);
        Ok(())
    }

    fn concluded(&mut self, state: &mut State) -> Option<Lease> {
        state.liveness.heard(self.now.instant);
        state.timers.received(self.now.instant);
        state.confirm(self.peer.mtu().into(), self.now, self.out)
    }

    fn send_staged(&mut self, lease: Option<Lease>) {
        if let Some(mut lease) = lease {
            lease.draft_staged(self.peer.mtu().into(), self.out);
            lease.finish(&self.peer.counters, self.out);
        }
    }
}

/// Length of an inner packet without its padding, as far as its header tells; 0 for a keepalive.
fn inner_length(packet: &Opened<'_>) -> usize {
    let word = |at: usize| packet.bytes.get(at..).and_then(|rest| rest.first_chunk());
    let length = match packet.bytes.first().map(|byte| byte >> 4) {
        Some(4) => word(2).map(|total| usize::from(u16::from_be_bytes(*total))),
        Some(6) => word(4).map(|payload| usize::from(u16::from_be_bytes(*payload)) + 40),
        _ => None,
    };
    length.filter(|length| (1..packet.bytes.len()).contains(length)).unwrap_or(packet.bytes.len())
}
