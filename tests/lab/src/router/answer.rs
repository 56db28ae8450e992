//! What a speaker says of a route, whoever it is.

/// The best route to a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// AS numbers with a space between them.
    pub as_path: String,
    /// Next hops; for IPv6 the global address is the first.
    pub next_hops: Vec<String>,
    /// `65000:7`, in the speaker's order.
    pub communities: Vec<String>,
    /// `4200000001:1:2`, in the speaker's order.
    pub large_communities: Vec<String>,
    /// Only on sessions within an AS.
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC, where there is one; GoBGP and BIRD say so, FRR shows 0 for none.
    pub med: Option<u32>,
    /// Who brought a reflected route into the AS (RFC 4456), else empty.
    pub originator: String,
    /// Who reflected it, the last one first.
    pub clusters: Vec<String>,
}

/// How many UPDATE messages, or routes where a speaker only counts those, a session has carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updates {
    /// From the neighbor.
    pub received: u64,
    /// To it.
    pub sent: u64,
}
