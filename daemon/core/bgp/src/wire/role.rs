//! BGP roles (RFC 9234): who is whose customer.

use std::fmt;

/// What a speaker is to its external neighbor, as it says itself (RFC 9234 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sells transit to the neighbor.
    Provider,
    /// A route server at an exchange.
    RouteServer,
    /// The neighbor is such a route server.
    RouteServerClient,
    /// Buys transit from the neighbor.
    Customer,
    /// Exchanges routes of its own and of its customers.
    Peer,
}

impl Role {
    /// Every role, by its number.
    pub const ALL: [Self; 5] =
        [Self::Provider, Self::RouteServer, Self::RouteServerClient, Self::Customer, Self::Peer];

    /// The capability's value.
    pub fn code(self) -> u8 {
        match self {
            Self::Provider => 0,
            Self::RouteServer => 1,
            Self::RouteServerClient => 2,
            Self::Customer => 3,
            Self::Peer => 4,
        }
    }

    /// The role with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.code() == code)
    }

    /// The only role that the neighbor may have (RFC 9234 section 4.2, table 2).
    #[must_use]
    pub fn counterpart(self) -> Self {
        match self {
            Self::Provider => Self::Customer,
            Self::Customer => Self::Provider,
            Self::RouteServer => Self::RouteServerClient,
            Self::RouteServerClient => Self::RouteServer,
            Self::Peer => Self::Peer,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Provider => "provider",
            Self::RouteServer => "route-server",
            Self::RouteServerClient => "route-server-client",
            Self::Customer => "customer",
            Self::Peer => "peer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_pair_up() {
        for (code, role) in (0..).zip(Role::ALL) {
            assert_eq!((role.code(), Role::from_code(code)), (code, Some(role)));
            assert_eq!(role.counterpart().counterpart(), role);
        }
        assert_eq!(Role::from_code(5), None);
    }
}
