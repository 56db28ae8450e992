//! `isthmusctl routes why`: what happens to a packet to one address, and why; exits with 5 where parts of the node disagree about it.

use std::net::IpAddr;

use isthmus_proto::{bgp, control as wire};
use serde::Serialize;
use tonic::{Code, Response, Status};

use crate::bgp_rib::{Entry, lay_out_paths};
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::Document;
use crate::page::Page;
use crate::routes::{Route, lay_out_routes};
use crate::watch::{Client, Question};

/// Asks what happens to a packet to one address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) address: IpAddr,
}

impl Query {
    /// What BGP knows; nothing where there is no speaker, or where the daemon is too old to tell.
    async fn ask_bgp(&self, client: &mut Client) -> Result<bgp::ExplainBgpResponse, Status> {
        let request = bgp::ExplainBgpRequest { address: self.address.to_string() };
        match client.bgp.explain(request).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::Unimplemented) => {
                Ok(bgp::ExplainBgpResponse::default())
            }
            Err(status) => Err(status),
        }
    }
}

impl Question for Query {
    type Answer = (wire::ExplainRouteResponse, bgp::ExplainBgpResponse);
    type Document = WhyDocument;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        let request = wire::ExplainRouteRequest { address: self.address.to_string() };
        let route = client.explain_route(request).await?.into_inner();
        Ok(Response::new((route, self.ask_bgp(client).await?)))
    }

    fn document(&self, (answer, bgp): Self::Answer) -> Result<WhyDocument, Failure> {
        Ok(WhyDocument {
            schema: "isthmus.v1/route-explanation",
            address: self.address.to_string(),
            route: answer.route.map(Route::from),
            steps: answer.steps,
            less_specific: answer.less_specific.into_iter().map(Route::from).collect(),
            bgp: bgp.entries.into_iter().map(Entry::from).collect(),
            contradictions: answer.contradictions,
        })
    }

    fn verdict(&self, document: &WhyDocument) -> Result<(), Failure> {
        match &document.contradictions[..] {
            [] => Ok(()),
            contradictions => Err(Failure::degraded(contradictions.join("; "))),
        }
    }
}

/// Schema `isthmus.v1/route-explanation`; no `route` means that nothing leads there.
#[derive(Debug, Serialize)]
pub(crate) struct WhyDocument {
    schema: &'static str,
    address: String,
    route: Option<Route>,
    steps: Vec<String>,
    /// Would take over, one after the other.
    less_specific: Vec<Route>,
    /// Every path that BGP has to a prefix that covers the address.
    bgp: Vec<Entry>,
    /// Where what was decided, the kernel and the data plane differ.
    contradictions: Vec<String>,
}

impl Document for WhyDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        match &self.route {
            Some(route) => {
                lay_out_routes(std::slice::from_ref(route), page);
                route.remark().iter().for_each(|remark| page.line(remark));
            }
            None => page.line(format!("no route to {}", self.address)),
        }
        if !self.steps.is_empty() {
            page.line("");
        }
        for (index, step) in self.steps.iter().enumerate() {
            page.line(format!("{}. {step}", index + 1));
        }
        self.lay_out_others(page);
    }
}

impl WhyDocument {
    fn lay_out_others(&self, page: &mut Page) {
        if !self.bgp.is_empty() {
            page.line("");
            page.line("What BGP knows:");
            lay_out_paths(&self.bgp, page);
        }
        if !self.less_specific.is_empty() {
            page.line("");
            page.line("What would take over:");
            lay_out_routes(&self.less_specific, page);
        }
    }
}
