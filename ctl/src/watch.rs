//! Asking the daemon once, or each second until interrupted.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use isthmus_proto::bgp::bgp_client::BgpClient;
use isthmus_proto::control::control_client::ControlClient;
use isthmus_proto::events::events_client::EventsClient;
use isthmus_proto::fabric::fabric_client::FabricClient;
use isthmus_proto::rotation::rotation_client::RotationClient;
use tokio::runtime;
use tokio::time::MissedTickBehavior;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::client::{self, Server};
use crate::failure::Failure;
use crate::output::{Document, Output};

const EACH: Duration = Duration::from_secs(1);

/// A connected client of the control socket: of the control API itself, and of the services beside it.
#[derive(Debug)]
pub(crate) struct Client {
    control: ControlClient<Channel>,
    /// Rotations.
    pub(crate) rotation: RotationClient<Channel>,
    /// Keys and peers of the fabric.
    pub(crate) fabric: FabricClient<Channel>,
    /// The BGP speaker in detail.
    pub(crate) bgp: BgpClient<Channel>,
    /// What happened.
    pub(crate) events: EventsClient<Channel>,
}

impl Client {
    /// All services of one connection.
    pub(crate) fn new(channel: Channel) -> Self {
        let control = client::control(channel.clone());
        let rotation = RotationClient::new(channel.clone());
        let events = EventsClient::new(channel.clone()).max_decoding_message_size(client::LARGEST_ANSWER);
        let bgp = BgpClient::new(channel.clone()).max_decoding_message_size(client::LARGEST_ANSWER);
        Self { control, rotation, bgp, events, fabric: FabricClient::new(channel) }
    }
}

impl Deref for Client {
    type Target = ControlClient<Channel>;

    fn deref(&self) -> &Self::Target {
        &self.control
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.control
    }
}

/// A question about the daemon's state: one request, and the document made of its answer.
pub(crate) trait Question {
    /// What the daemon sends.
    type Answer;
    /// What is printed.
    type Document: Document;

    /// Sends the request.
    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status>;

    /// Makes the document; fails where the answer lacks what was asked for.
    fn document(&self, answer: Self::Answer) -> Result<Self::Document, Failure>;

    /// What the exit code should say about a document that was printed.
    fn verdict(&self, _: &Self::Document) -> Result<(), Failure> {
        Ok(())
    }
}

/// How questions are put and answers shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) socket: &'a Path,
    pub(crate) output: &'a Output,
    pub(crate) watch: bool,
}

impl Ask<'_> {
    /// Puts the question and prints the answer: once, or with `watch` until interrupted.
    ///
    /// # Errors
    /// What the exit code is to say, see [`Failure`].
    pub(crate) fn show(&self, question: &impl Question) -> Result<(), Failure> {
        let server = Server::control(self.socket);
        run(async {
            if self.watch {
                match self.forever(&server, question).await? {}
            }
            let document = ask(&server, &mut None, question).await?;
            self.output.print(&document)?;
            question.verdict(&document)
        })
    }

    async fn forever(&self, server: &Server, question: &impl Question) -> Result<Infallible, Failure> {
        let mut ticks = tokio::time::interval(EACH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut client = None;
        let mut first = true;
        let mut reachable = true;
        loop {
            ticks.tick().await;
            match ask(server, &mut client, question).await {
                Ok(document) => {
                    self.output.print_again(&document, first)?;
                    (first, reachable) = (false, true);
                }
                Err(failure) if failure.is_unreachable() => {
                    // Told once for each outage, not each second.
                    if reachable {
                        failure.write();
                    }
                    (client, reachable) = (None, false);
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// Puts the question over `client`, connecting first where there is none.
async fn ask<Q: Question>(
    server: &Server,
    client: &mut Option<Client>,
    question: &Q,
) -> Result<Q::Document, Failure> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::new(server.connect().await?)),
    };
    let answer = question.ask(client).await.map_err(|status| server.failed(&status))?;
    question.document(answer.into_inner())
}

/// Runs to completion on this thread.
///
/// # Errors
/// What the future fails with, or that the system gives no event queue.
pub(crate) fn run<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the system gives no event queue: {error}")))?;
    runtime.block_on(future)
}
