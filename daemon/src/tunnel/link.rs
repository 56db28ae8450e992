//! Addresses, MTU and state of our interface, through rtnetlink.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::{
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute},
};
use rtnetlink::{AddressMessageBuilder, Handle, LinkUnspec};
use tokio_util::task::AbortOnDropHandle;

use super::{Error, sys};

/// An interface of ours, by its kernel index.
pub(super) struct Link {
    name: String,
    index: u32,
    netlink: Handle,
    _connection: AbortOnDropHandle<()>,
}

impl Link {
    /// Finds the interface by name.
    pub(super) fn find(name: &str) -> Result<Self, Error> {
        let system = |reason| Error::System { what: "open a netlink socket", reason };
        let index = sys::interface_index(name).map_err(system)?;
        let (connection, netlink, _) = rtnetlink::new_connection().map_err(system)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(connection));
        Ok(Self { name: name.to_owned(), index, netlink, _connection: connection })
    }

    /// MTU, addresses, then up. The connected routes follow from the prefix lengths.
    pub(super) async fn configure(&self, mtu: u16, addresses: &[IpNet]) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(self.index).mtu(mtu.into()).build();
        let result = self.netlink.link().set(message).execute().await;
        result.map_err(|error| self.failure(format!("MTU {mtu}"), &error))?;
        self.without_link_local().await;
        self.keep_addresses();
        self.add_all(addresses).await?;
        let message = LinkUnspec::new_with_index(self.index).up().build();
        self.netlink
            .link()
            .set(message)
            .execute()
            .await
            .map_err(|error| self.failure("the state up".into(), &error))
    }

    /// Adds addresses, in this order; those that are there already are fine.
    pub(super) async fn add_all(&self, addresses: &[IpNet]) -> Result<(), Error> {
        for address in addresses {
            self.add(*address).await?;
        }
        Ok(())
    }

    async fn add(&self, address: IpNet) -> Result<(), Error> {
        let mut request =
            self.netlink.address().add(self.index, address.addr(), address.prefix_len()).replace();
        if address.addr().is_ipv6() {
            without_detection(request.message_mut());
        }
        request.execute().await.map_err(|error| {
            let mut failure = self.failure(format!("address {address}"), &error);
            if let Error::Interface { remedy, .. } = &mut failure {
                *remedy = why_no_address(address, errno(&error));
            }
            failure
        })
    }

    /// Removes an address.
    pub(super) async fn remove(&self, address: IpNet) -> Result<(), Error> {
        let message = message(self.index, address);
        let result = self.netlink.address().del(message).execute().await;
        result.map_err(|error| self.failure(format!("the absence of address {address}"), &error))
    }

    /// Nobody answers router solicitations in a tunnel, so the kernel need not send them. Kernels without IPv6 refuse; that is fine.
    async fn without_link_local(&self) {
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let attribute = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
        let message = LinkUnspec::new_with_index(self.index).append_extra_attribute(attribute).build();
        if let Err(error) = self.netlink.link().set(message).execute().await {
            tracing::debug!(interface = self.name, %error, "the kernel keeps its own link-local address");
        }
    }

    /// Else the interface loses its IPv6 addresses for good when somebody sets it down and up again. Where the setting cannot be written
    /// (a container with a read-only /proc/sys, no IPv6) a reload brings them back.
    fn keep_addresses(&self) {
        let setting = format!("/proc/sys/net/ipv6/conf/{}/keep_addr_on_down", self.name);
        if let Err(error) = std::fs::write(&setting, "1") {
            tracing::debug!(setting, %error, "IPv6 addresses will not survive the interface going down");
        }
    }

    fn failure(&self, what: String, error: &rtnetlink::Error) -> Error {
        let reason = match error {
            rtnetlink::Error::NetlinkError(message) => message.to_io().to_string(),
            other => other.to_string(),
        };
        Error::Interface { interface: self.name.clone(), what, reason, remedy: "" }
    }
}

fn errno(error: &rtnetlink::Error) -> i32 {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// What to do about a refused address. The kernel speaks of permission where it means that IPv6 is off.
fn why_no_address(address: IpNet, errno: i32) -> &'static str {
    match (address, errno) {
        (IpNet::V6(_), libc::EACCES) => {
            "IPv6 is disabled: set net.ipv6.conf.all.disable_ipv6 and net.ipv6.conf.default.disable_ipv6 to 0 \
             (sysctl), or remove the address from `addresses` in [tunnel]"
        }
        (IpNet::V6(_), libc::EOPNOTSUPP | libc::EAFNOSUPPORT) => {
            "This kernel runs without IPv6 (ipv6.disable=1?): remove the address from `addresses` in [tunnel]"
        }
        (_, libc::EPERM) => "CAP_NET_ADMIN is missing",
        _ => "",
    }
}

fn message(index: u32, address: IpNet) -> AddressMessage {
    match address.addr() {
        IpAddr::V4(ip) => AddressMessageBuilder::<std::net::Ipv4Addr>::new()
            .index(index)
            .address(ip, address.prefix_len())
            .build(),
        IpAddr::V6(ip) => AddressMessageBuilder::<std::net::Ipv6Addr>::new()
            .index(index)
            .address(ip, address.prefix_len())
            .build(),
    }
}

/// A tunnel has no link on which a duplicate could be found; without this the address is unusable for a second.
fn without_detection(message: &mut AddressMessage) {
    message.header.flags |= AddressHeaderFlags::Nodad;
    message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_ipv6_is_named_as_what_it_is() {
        let remedy = |address: &str, errno| why_no_address(address.parse().unwrap(), errno);
        let text = Error::Interface {
            interface: "isthmus0".into(),
            what: "address fd7a::1/64".into(),
            reason: "Permission denied (os error 13)".into(),
            remedy: remedy("fd7a::1/64", libc::EACCES),
        }
        .to_string();
        assert!(text.contains("(os error 13). IPv6 is disabled") && text.contains("disable_ipv6"), "{text}");
        assert!(text.contains("remove the address"), "{text}");
        assert!(remedy("fd7a::1/64", libc::EOPNOTSUPP).contains("without IPv6"));
        assert_eq!(remedy("10.99.0.1/24", libc::EACCES), "");
    }
}
