//! Routing a batch: packets of one flow come in runs, and a run costs one look-up.

use std::net::IpAddr;

use super::{Slot, Table, group::Group};
use crate::packet::Packet;

/// Answers like its [`Table`] and remembers the last destination and the last source with their groups. Lives as long as a batch.
#[derive(Debug)]
pub struct Router<'a> {
    table: &'a Table,
    destination: Option<Known<'a>>,
    source: Option<Known<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    address: IpAddr,
    group: Option<&'a Group>,
}

impl<'a> Router<'a> {
    pub(super) fn new(table: &'a Table) -> Self {
        Self { table, destination: None, source: None }
    }

    /// As [`Table::route`].
    pub fn route(&mut self, packet: &Packet<'_>) -> Option<Slot> {
        let group = remembered(self.table, &mut self.destination, packet.destination)?;
        self.table.members.choose(&group.selected, packet.flow)
    }

    /// As [`Table::is_feasible`].
    pub fn is_feasible(&mut self, source: IpAddr, peer: Slot) -> bool {
        remembered(self.table, &mut self.source, source).is_some_and(|group| group.is_feasible(peer))
    }
}

fn remembered<'a>(table: &'a Table, last: &mut Option<Known<'a>>, address: IpAddr) -> Option<&'a Group> {
    match last {
        Some(known) if known.address == address => known.group,
        _ => last.insert(Known { address, group: table.group(address) }).group,
    }
}
