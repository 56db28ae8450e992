//! `isthmus.v1.Bgp`: sessions in detail, whole tables, and orders to sessions.

use std::{net::Ipv4Addr, pin::Pin, time::SystemTime};

use futures_util::stream;
use isthmus_bgp::{
    Reset,
    speaker::{Question, Table},
};
use isthmus_proto::bgp::{
    BgpNeighborDetail, ClearBgpKind, ClearBgpRequest, ClearBgpResponse, DumpMrtRequest, ExplainBgpRequest,
    ExplainBgpResponse, ListRibRequest, MrtPart, RibPage, RibTable, ShowBgpNeighborRequest, bgp_server::Bgp,
};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{detail, mrt::Dump, rib};
use crate::{
    api::{Parts, operator, orders, routes},
    bfd::SessionStatus,
    bgp::{Handle, Unanswered, Walk},
};

/// Names that nobody can have are not looked up.
const MAX_NAME: usize = 256;

/// An answer in parts, each made when the client has room for it.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(in crate::api) struct Service {
    pub(in crate::api) parts: Parts,
}

#[tonic::async_trait]
impl Bgp for Service {
    async fn show_neighbor(
        &self,
        request: Request<ShowBgpNeighborRequest>,
    ) -> Result<Response<BgpNeighborDetail>, Status> {
        let handle = self.handle()?;
        let name = name(request.into_inner().neighbor)?;
        let detail = handle.detail(name.unwrap_or_default()).await.map_err(unanswered)?;
        let mut known = handle.neighbors().await.into_iter();
        let shell = known.find(|status| *status.name == *detail.status.name);
        let watches = self.watches().await;
        let bfd = watches.iter().find(|watch| watch.config.neighbors.contains(&detail.status.name));
        let asn = self.parts.speaker.map_or(0, |speaker| speaker.asn);
        Ok(Response::new(detail::message(detail, shell, asn, bfd)))
    }

    async fn clear(&self, request: Request<ClearBgpRequest>) -> Result<Response<ClearBgpResponse>, Status> {
        let (handle, by) = (self.handle()?, operator::of(&request)?);
        let ClearBgpRequest { neighbor, kind } = request.into_inner();
        let (resets, what) = resets(kind)?;
        let neighbors = handle.find(name(neighbor)?).await.map_err(unanswered)?;
        let what = format!("{what} {}", neighbors.join(" "));
        let noted = orders::note(self.parts.identity.as_ref(), &by, &what).await?;
        tracing::info!(%by, what, "an operator's order");
        let done = handle.reset(neighbors.clone(), resets).await;
        noted.end(if done.is_ok() { "done" } else { "failed: BGP is stopped" }).await;
        done.map_err(unanswered)?;
        Ok(Response::new(ClearBgpResponse { neighbors }))
    }

    type ListRibStream = Answers<RibPage>;

    async fn list_rib(
        &self,
        request: Request<ListRibRequest>,
    ) -> Result<Response<Self::ListRibStream>, Status> {
        let handle = self.handle()?;
        let request = request.into_inner();
        let walk = handle.walk(question(&request)?, name(request.neighbor)?).await.map_err(unanswered)?;
        Ok(Response::new(Box::pin(stream::try_unfold(walk, next_page))))
    }

    type DumpMrtStream = Answers<MrtPart>;

    async fn dump_mrt(&self, _: Request<DumpMrtRequest>) -> Result<Response<Self::DumpMrtStream>, Status> {
        let handle = self.handle()?;
        let collector = self.parts.speaker.map_or(Ipv4Addr::UNSPECIFIED, |speaker| speaker.router_id);
        let dump = Dump::begin(handle, collector, SystemTime::now()).await?;
        Ok(Response::new(Box::pin(stream::try_unfold(dump, next_part))))
    }

    async fn explain(
        &self,
        request: Request<ExplainBgpRequest>,
    ) -> Result<Response<ExplainBgpResponse>, Status> {
        let address = routes::parse_address(&request.into_inner().address)?;
        let entries = self.handle()?.explain(address).await.map_err(unanswered)?;
        Ok(Response::new(ExplainBgpResponse { entries: entries.into_iter().map(rib::entry).collect() }))
    }
}

impl Service {
    async fn watches(&self) -> Vec<SessionStatus> {
        match &self.parts.bfd {
            Some(bfd) => bfd.sessions().await,
            None => Vec::new(),
        }
    }

    fn handle(&self) -> Result<&Handle, Status> {
        let handle = self.parts.bgp.as_ref();
        handle.ok_or_else(|| Status::failed_precondition("no BGP speaker is configured: there is no [bgp]"))
    }
}

/// `None`: of all.
fn name(name: String) -> Result<Option<String>, Status> {
    if name.len() > MAX_NAME {
        return Err(Status::invalid_argument(format!("a neighbor's name is longer than {MAX_NAME} bytes")));
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// What to do, and what the command is called.
fn resets(kind: i32) -> Result<(Vec<Reset>, &'static str), Status> {
    match ClearBgpKind::try_from(kind) {
        Ok(ClearBgpKind::Hard) => Ok((vec![Reset::Hard], "bgp clear")),
        Ok(ClearBgpKind::SoftIn) => Ok((vec![Reset::SoftIn], "bgp clear --soft in")),
        Ok(ClearBgpKind::SoftOut) => Ok((vec![Reset::SoftOut], "bgp clear --soft out")),
        Ok(ClearBgpKind::SoftBoth) => Ok((vec![Reset::SoftIn, Reset::SoftOut], "bgp clear --soft both")),
        Ok(ClearBgpKind::Unspecified) | Err(_) => Err(Status::invalid_argument("no such kind of clearing")),
    }
}

fn question(request: &ListRibRequest) -> Result<Question, Status> {
    let table = match request.table() {
        RibTable::In => Table::In,
        RibTable::Out => Table::Out,
        RibTable::Best => Table::Best,
        RibTable::Unspecified => return Err(Status::invalid_argument("no such table")),
    };
    Ok(Question {
        table,
        prefix: routes::parse_optional(&request.prefix)?,
        longer: request.longer,
        peer: None,
    })
}

async fn next_page(mut walk: Walk) -> Result<Option<(RibPage, Walk)>, Status> {
    let entries = walk.entries().await.map_err(unanswered)?;
    let page = |entries: Vec<_>| RibPage { entries: entries.into_iter().map(rib::entry).collect() };
    Ok(entries.map(|entries| (page(entries), walk)))
}

async fn next_part(mut dump: Dump) -> Result<Option<(MrtPart, Dump)>, Status> {
    Ok(dump.next().await?.map(|part| (part, dump)))
}

pub(super) fn unanswered(why: Unanswered) -> Status {
    match why {
        Unanswered::Stopped => Status::unavailable(why.to_string()),
        Unanswered::Unknown { .. } => Status::not_found(why.to_string()),
    }
}
