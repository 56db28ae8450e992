//! What neighbors sent, as an MRT file.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    time::{SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use isthmus_bgp::{
    PeerId,
    mrt::{Entry, Peer, encode_peer_index, encode_rib},
    rib::{Neighbor, Path},
    speaker::{Question, Table},
    wire::EncodeError,
};
use isthmus_proto::bgp::MrtPart;
use tonic::Status;

use super::service::unanswered;
use crate::bgp::{Handle, Walk};

const EVERYTHING: Question = Question { table: Table::In, prefix: None, longer: false, peer: None };

/// A file that is being made, a part at a time.
pub(super) struct Dump {
    walk: Walk,
    records: Records,
    /// The first part, until it is given out.
    index: Option<Vec<u8>>,
}

impl Dump {
    /// Of a speaker with this BGP identifier, as of now.
    pub(super) async fn begin(handle: &Handle, collector: Ipv4Addr, now: SystemTime) -> Result<Self, Status> {
        let walk = handle.walk(EVERYTHING, None).await.map_err(unanswered)?;
        let sources = handle.sources().await.map_err(unanswered)?;
        let sources: Vec<&Neighbor> = sources.iter().map(AsRef::as_ref).collect();
        let begun = Records::begin(collector, &sources, seconds(now));
        let (records, index) = begun.map_err(|error| Status::internal(format!("the peer index: {error}")))?;
        Ok(Self { walk, records, index: Some(index) })
    }

    /// The next part; `None`: these were all.
    pub(super) async fn next(&mut self) -> Result<Option<MrtPart>, Status> {
        if let Some(data) = self.index.take() {
            return Ok(Some(self.part(data)));
        }
        let Some(page) = self.walk.paths().await.map_err(unanswered)? else { return Ok(None) };
        let mut data = Vec::new();
        for (prefix, paths) in &page {
            self.records.append(*prefix, paths, &mut data).map_err(|error| unencodable(prefix, &error))?;
        }
        Ok(Some(self.part(data)))
    }

    fn part(&self, data: Vec<u8>) -> MrtPart {
        MrtPart { data, left: u64::try_from(self.walk.left()).unwrap_or(u64::MAX) }
    }
}

fn unencodable(prefix: &IpNet, error: &EncodeError) -> Status {
    Status::internal(format!("{prefix} does not fit into an MRT record: {error}"))
}

/// Since 1970, in the 32 bits that MRT has for it.
fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// What records are made from beside the table.
struct Records {
    places: HashMap<PeerId, u16>,
    time: u32,
    /// Records so far.
    count: u32,
}

impl Records {
    /// With the peer index, which comes first.
    fn begin(collector: Ipv4Addr, sources: &[&Neighbor], time: u32) -> Result<(Self, Vec<u8>), EncodeError> {
        let peer = |source: &&Neighbor| Peer {
            router_id: source.router_id,
            address: source.address,
            asn: source.asn,
        };
        let peers: Vec<_> = sources.iter().map(peer).collect();
        let mut index = Vec::new();
        encode_peer_index(time, collector, "", &peers, &mut index)?;
        let places = sources.iter().map(|source| source.id).zip(0..).collect();
        Ok((Self { places, time, count: 0 }, index))
    }

    /// Appends what neighbors sent of a prefix; nothing if they did not, or are not in the index because they came meanwhile.
    ///
    /// When a path was heard is not kept: the time of the dump stands in for it.
    fn append(&mut self, prefix: IpNet, paths: &[Path], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let entries: Vec<_> = paths.iter().filter_map(|path| self.entry(path)).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let path_ids = entries.iter().any(|entry| entry.path_id != 0);
        encode_rib(self.time, self.count, prefix, path_ids, &entries, out)?;
        self.count = self.count.wrapping_add(1);
        Ok(())
    }

    fn entry<'a>(&self, path: &'a Path) -> Option<Entry<'a>> {
        let peer = *self.places.get(&path.source().peer()?)?;
        let attributes = path.bundle().received();
        Some(Entry { peer, originated: self.time, path_id: path.received_id(), attributes })
    }
}
