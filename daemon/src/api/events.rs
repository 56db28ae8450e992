//! What happened on this node.

use std::{
    pin::Pin,
    time::{Duration, UNIX_EPOCH},
};

use isthmus_proto::events::{
    EventBatch, EventField, EventLevel, ListEventsRequest, NodeEvent, events_server::Events,
};
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use super::epoch_milliseconds;
use crate::{
    events::{Event, Journal, Level, Page, Query},
    lifecycle::CancellationToken,
};

/// Batches on their way to one follower; more wait in the journal.
const UNDER_WAY: usize = 2;

pub(super) struct Service {
    pub(super) journal: Journal,
    /// Followers are told good-bye, so that they don't hold up the end of the server.
    pub(super) shutdown: CancellationToken,
}

#[tonic::async_trait]
impl Events for Service {
    async fn list(&self, request: Request<ListEventsRequest>) -> Result<Response<EventBatch>, Status> {
        let (mut query, mut all) = (query(request.into_inner()), EventBatch::default());
        while !read(&self.journal, &mut query, &mut all) {}
        Ok(Response::new(all))
    }

    type FollowStream = Pin<Box<dyn Stream<Item = Result<EventBatch, Status>> + Send>>;

    async fn follow(
        &self,
        request: Request<ListEventsRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let (sender, receiver) = mpsc::channel(UNDER_WAY);
        let follower = follow(self.journal.clone(), query(request.into_inner()), sender);
        tokio::spawn(self.shutdown.clone().run_until_cancelled_owned(follower));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// Sends what there is and what comes, until nobody listens any more.
async fn follow(journal: Journal, mut query: Query, sender: mpsc::Sender<Result<EventBatch, Status>>) {
    let mut grown = journal.subscribe();
    loop {
        let mut batch = EventBatch::default();
        let complete = read(&journal, &mut query, &mut batch);
        if (batch.lost > 0 || !batch.events.is_empty()) && sender.send(Ok(batch)).await.is_err() {
            return;
        }
        if complete {
            tokio::select! {
                grown = grown.changed() => if grown.is_err() { return },
                () = sender.closed() => return,
            }
        }
    }
}

/// Appends the next page to `batch`; true: it was the last one that there is now.
fn read(journal: &Journal, query: &mut Query, batch: &mut EventBatch) -> bool {
    let Page { events, lost, next, complete } = journal.page(query);
    batch.lost += lost;
    batch.events.extend(events.iter().map(|(number, event)| message(*number, event)));
    query.after = next;
    complete
}

fn query(request: ListEventsRequest) -> Query {
    let ListEventsRequest { since_ms, subsystem } = request;
    let since = u64::try_from(since_ms).ok().filter(|since| *since > 0);
    Query {
        after: 0,
        since: since.and_then(|since| UNIX_EPOCH.checked_add(Duration::from_millis(since))),
        subsystem: Some(subsystem).filter(|name| !name.is_empty()),
    }
}

fn message(sequence: u64, event: &Event) -> NodeEvent {
    let level = match event.level {
        Level::Info => EventLevel::Info,
        Level::Warning => EventLevel::Warning,
        Level::Error => EventLevel::Error,
    };
    let field =
        |field: &crate::events::Field| EventField { name: field.name.to_owned(), value: field.value.clone() };
    NodeEvent {
        sequence,
        at_ms: epoch_milliseconds(event.time),
        level: level.into(),
        subsystem: event.subsystem.to_owned(),
        message: event.message.clone(),
        fields: event.fields.iter().map(field).collect(),
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::events::{CAPACITY, layer};

    fn service() -> (Service, tracing::subscriber::DefaultGuard) {
        let journal = Journal::new();
        let subscriber = tracing_subscriber::registry().with(layer(journal.clone()));
        let service = Service { journal, shutdown: CancellationToken::new() };
        (service, tracing::subscriber::set_default(subscriber))
    }

    fn say(count: usize) {
        for number in 0..count {
            tracing::info!(target: "isthmusd::bgp", number, "said");
        }
    }

    #[tokio::test]
    async fn a_follower_gets_what_was_what_comes_and_the_end() {
        let (service, _guard) = service();
        say(1);
        tracing::warn!(target: "isthmusd::fib", "not asked for");
        let request = ListEventsRequest { subsystem: "bgp".into(), since_ms: 1 };
        let mut stream = service.follow(Request::new(request)).await.unwrap().into_inner();
        let mut next = async || stream.next().await.map(|batch| batch.unwrap());
        let numbers = |batch: EventBatch| batch.events.iter().map(|event| event.sequence).collect::<Vec<_>>();
        assert_eq!(next().await.map(numbers), Some(vec![1]));
        say(2);
        assert_eq!(next().await.map(numbers), Some(vec![3, 4]));
        service.shutdown.cancel();
        assert_eq!(next().await, None);
    }

    #[tokio::test]
    async fn a_slow_follower_is_told_what_it_missed() {
        let (service, _guard) = service();
        let stream = service.follow(Request::new(ListEventsRequest::default())).await.unwrap();
        // Nothing here lets the follower run.
        say(3 * CAPACITY);
        let (mut stream, mut lost, mut seen) = (stream.into_inner(), 0, 0);
        while lost + seen < 3 * CAPACITY as u64 {
            let batch = stream.next().await.unwrap().unwrap();
            lost += batch.lost;
            seen += batch.events.len() as u64;
        }
        assert_eq!((lost, seen), (2 * CAPACITY as u64, CAPACITY as u64));
        let all = service.list(Request::new(ListEventsRequest::default())).await.unwrap().into_inner();
        assert_eq!((all.lost, all.events.len()), (2 * CAPACITY as u64, CAPACITY));
    }
}
