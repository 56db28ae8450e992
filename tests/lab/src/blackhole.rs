//! Paths that fail without a word: no link goes down, no error message comes back.

use std::net::IpAddr;

use anyhow::{Context, Result};
use netlink_packet_route::{
    AddressFamily,
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use crate::netns::Netns;

/// Before the main table's rule, behind the local table's.
const PRIORITY: u32 = 100;

impl Netns {
    /// From now on drops what it would forward from or to `address`.
    ///
    /// # Errors
    /// When it does so already, or the kernel has no policy rules.
    pub fn swallow(&self, address: IpAddr) -> Result<()> {
        self.netlink(async |handle| {
            for rule in rules(address) {
                let mut request = handle.rule().add();
                *request.message_mut() = rule;
                request.execute().await?;
            }
            Ok(())
        })
        .with_context(|| format!("swallowing packets of {address} in {}", self.name()))
    }

    /// Undoes [`Netns::swallow`].
    ///
    /// # Errors
    /// When it does not do so.
    pub fn spare(&self, address: IpAddr) -> Result<()> {
        self.netlink(async |handle| {
            for rule in rules(address) {
                handle.rule().del(rule).execute().await?;
            }
            Ok(())
        })
        .with_context(|| format!("sparing packets of {address} in {}", self.name()))
    }
}

/// From it, and to it.
fn rules(address: IpAddr) -> [RuleMessage; 2] {
    let (family, length) =
        if address.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) };
    let mut from = RuleMessage::default();
    from.header.family = family;
    from.header.action = RuleAction::Blackhole;
    from.attributes.push(RuleAttribute::Priority(PRIORITY));
    let mut to = from.clone();
    from.header.src_len = length;
    from.attributes.push(RuleAttribute::Source(address));
    to.header.dst_len = length;
    to.attributes.push(RuleAttribute::Destination(address));
    [from, to]
}
