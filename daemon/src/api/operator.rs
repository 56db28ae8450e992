//! Who is at the other end of the control socket, as the kernel says (SO_PEERCRED): orders are written down with it.

use tokio::net::UnixStream;
use tonic::{Request, Status};

use crate::identity::Requester;

/// Of one connection; `None`: the kernel said nothing.
#[derive(Clone, Debug)]
pub(crate) struct Operator(Option<Requester>);

impl Operator {
    pub(super) fn of(stream: &UnixStream) -> Self {
        let credentials = stream.peer_cred().ok();
        Self(credentials.map(|who| Requester::Operator { uid: who.uid(), pid: who.pid() }))
    }
}

/// Who gives this order. One that nobody can be named for is not taken.
pub(super) fn of<T>(request: &Request<T>) -> Result<Requester, Status> {
    let operator = request.extensions().get::<Operator>().and_then(|operator| operator.0.clone());
    operator.ok_or_else(|| {
        Status::failed_precondition(
            "the kernel does not say who asks, and orders are written down with a name",
        )
    })
}
