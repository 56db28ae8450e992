//! Who asks for an identity: what the audit log says, and whose account is charged.

use std::fmt;

use isthmus_pki::SpiffeId;

/// Who asks. Everything in it was proven before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A process at the Workload API's socket.
    Workload {
        /// Its user.
        uid: u32,
        /// Its number, at the time.
        pid: u32,
    },
    /// A node that showed its SVID.
    Node(SpiffeId),
    /// Whoever holds a join token; the token's name, which is no secret.
    Token(String),
    /// A person at the control socket.
    Operator {
        /// Who.
        uid: u32,
        /// The process that asked for them, where the kernel says it.
        pid: Option<i32>,
    },
}

/// Whose account is charged. A process can have as many numbers as it likes, so its user pays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Account {
    /// Workloads of a user.
    Uid(u32),
    /// A node.
    Node(SpiffeId),
    /// All holders of tokens: whoever can make up names must not get an account for each.
    Tokens,
    /// All operators.
    Operators,
}

impl Requester {
    pub(super) fn account(&self) -> Account {
        match self {
            Self::Workload { uid, .. } => Account::Uid(*uid),
            Self::Node(id) => Account::Node(id.clone()),
            Self::Token(_) => Account::Tokens,
            Self::Operator { .. } => Account::Operators,
        }
    }

    /// May it have this node's ID? Workloads never; a node its own and no other's; tokens are bound to an ID by whoever redeems them.
    pub(super) fn may_be_node(&self, id: &SpiffeId) -> bool {
        match self {
            Self::Workload { .. } => false,
            Self::Node(own) => own == id,
            Self::Token(_) | Self::Operator { .. } => true,
        }
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload { uid, pid } => write!(f, "workload uid={uid} pid={pid}"),
            Self::Node(id) => write!(f, "node {id}"),
            Self::Token(name) => write!(f, "token {name}"),
            Self::Operator { uid, pid: Some(pid) } => write!(f, "operator uid={uid} pid={pid}"),
            Self::Operator { uid, pid: None } => write!(f, "operator uid={uid}"),
        }
    }
}
