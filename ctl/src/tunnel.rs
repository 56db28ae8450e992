//! `isthmusctl tunnel`: the tunnel engine, and how much each of its system calls carries.

use std::collections::BTreeMap;

use isthmus_proto::control as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::Moment;
use crate::offloads::{self, Offload};
use crate::output::Document;
use crate::page::{Cell, Page};
use crate::text;
use crate::watch::{Client, Question};

/// The drop reason of packets that were carried all the same.
pub(crate) const CARRIED: &str = "endpoint_refused";

/// Asks for the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query;

impl Question for Query {
    type Answer = wire::GetTunnelResponse;
    type Document = TunnelDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.get_tunnel(wire::GetTunnelRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<TunnelDocument, Failure> {
        let configured = !answer.interface.is_empty();
        Ok(TunnelDocument {
            schema: "isthmus.v1/tunnel",
            interface: text::known(answer.interface),
            listen_port: configured.then_some(answer.listen_port),
            public_key: text::known(answer.public_key),
            workers: configured.then_some(answer.workers),
            offloads: answer.offloads.into_iter().map(Offload::from).collect(),
            batches: answer.batches.into_iter().map(Batches::from).collect(),
            drops: answer.drops.into_iter().collect(),
        })
    }
}

/// Schema `isthmus.v1/tunnel`.
#[derive(Debug, Serialize)]
pub(crate) struct TunnelDocument {
    schema: &'static str,
    /// Nothing where no tunnel is configured, as the next three.
    interface: Option<String>,
    listen_port: Option<u32>,
    public_key: Option<String>,
    workers: Option<u32>,
    offloads: Vec<Offload>,
    batches: Vec<Batches>,
    /// Reason -> packets that belong to no peer.
    drops: BTreeMap<String, u64>,
}

/// What the system calls of one kind carried.
#[derive(Debug, Serialize)]
struct Batches {
    call: String,
    calls: u64,
    packets: u64,
    cumulative: Vec<Bucket>,
}

/// How many calls carried so many packets at most; nothing: any number.
#[derive(Clone, Copy, Debug, Serialize)]
struct Bucket {
    at_most: Option<u64>,
    calls: u64,
}

impl From<wire::BatchSizes> for Batches {
    fn from(sizes: wire::BatchSizes) -> Self {
        let bucket = |found: wire::BatchBucket| Bucket { at_most: found.at_most, calls: found.calls };
        let cumulative = sizes.cumulative.into_iter().map(bucket).collect::<Vec<_>>();
        let calls = cumulative.last().map_or(0, |last| last.calls);
        Self { call: sizes.call, calls, packets: sizes.packets, cumulative }
    }
}

impl Document for TunnelDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        let Some(interface) = &self.interface else { return page.line("no tunnel is configured") };
        page.facts([
            ("Interface", interface.as_str().into()),
            ("UDP port", u64::from(self.listen_port.unwrap_or(0)).into()),
            ("Public key", self.public_key.as_deref().unwrap_or("").into()),
            ("Workers", u64::from(self.workers.unwrap_or(0)).into()),
        ]);
        page.line("");
        offloads::table(&self.offloads, page);
        page.line("");
        let header = ["CALL", "CALLS", "PACKETS", "AVERAGE", "1", "2-8", "9-64", "MORE"];
        page.table(header, self.batches.iter().map(Batches::row), "no batch sizes");
        page.line("");
        let dropped = self.drops.iter().map(|(reason, packets)| [named(reason), (*packets).into()]);
        page.table(["DROPPED, OF NO PEER", "PACKETS"], dropped, "no drops but those of peers");
    }
}

fn named(reason: &str) -> Cell {
    if reason == CARRIED { format!("{reason} (carried)").into() } else { reason.into() }
}

impl Batches {
    fn row(&self) -> [Cell; 8] {
        let (one, eight, many) = (self.within(1), self.within(8), self.within(64));
        let share = |calls| share(calls, self.calls).into();
        [
            self.call.as_str().into(),
            self.calls.into(),
            self.packets.into(),
            average(self.packets, self.calls).into(),
            share(one),
            share(eight.saturating_sub(one)),
            share(many.saturating_sub(eight)),
            share(self.calls.saturating_sub(many)),
        ]
    }

    /// Calls that carried so many packets or fewer, as far as the buckets tell.
    fn within(&self, packets: u64) -> u64 {
        let fits = |bucket: &&Bucket| bucket.at_most.is_some_and(|bound| bound <= packets);
        self.cumulative.iter().filter(fits).map(|bucket| bucket.calls).max().unwrap_or(0)
    }
}

/// Packets for each call with one decimal; nothing where there was no call.
fn average(packets: u64, calls: u64) -> String {
    let tenths = (u128::from(packets) * 10).checked_div(calls.into());
    tenths.map(|tenths| format!("{}.{}", tenths / 10, tenths % 10)).unwrap_or_default()
}

/// A part of all in per cent with one decimal; nothing where there is no whole.
fn share(part: u64, all: u64) -> String {
    let permille = (u128::from(part) * 1000).checked_div(all.into());
    permille.map(|permille| format!("{}.{} %", permille / 10, permille % 10)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_have_one_decimal_and_need_a_whole() {
        for (packets, calls, said) in
            [(0, 0, ""), (7, 0, ""), (0, 3, "0.0"), (107, 10, "10.7"), (2, 3, "0.6")]
        {
            assert_eq!(average(packets, calls), said);
        }
        for (part, all, said) in [(0, 0, ""), (0, 9, "0.0 %"), (1, 3, "33.3 %"), (9, 9, "100.0 %")] {
            assert_eq!(share(part, all), said);
        }
        assert_eq!(share(u64::MAX, u64::MAX), "100.0 %");
    }
}
