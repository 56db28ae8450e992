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
}
