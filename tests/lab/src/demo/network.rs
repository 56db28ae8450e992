//! Step 1: an internet in the middle, three sites around it.

use std::{collections::BTreeMap, fs::OpenOptions, io, path::Path};

use anyhow::{Context, Result, anyhow, ensure};
use isthmus_lab::{link::veth, netns::Netns};

use super::plan::{self, Gateway, SITES, Site};

/// What the daemons make their tunnel interfaces from.
const TUN: &str = "/dev/net/tun";

/// Every namespace of the demo, by name.
pub(super) struct Network {
    netns: BTreeMap<String, Netns>,
}

impl Network {
    /// Makes and joins all of it, once it is sure that tunnels can be made here.
    pub(super) fn build() -> Result<Self> {
        ensure_tun(Path::new(TUN))?;
        let mut network = Self { netns: BTreeMap::new() };
        network.add("internet")?.forward()?;
        for site in &SITES {
            network.site(site)?;
        }
        network.ensure_no_shortcut()?;
        Ok(network)
    }

    /// One of its namespaces.
    pub(super) fn get(&self, name: &str) -> Result<&Netns> {
        self.netns.get(name).with_context(|| format!("the demo has no namespace {name}"))
    }

    /// The internet loses every packet of this gateway, and tells nobody.
    pub(super) fn silence(&self, gateway: &Gateway) -> Result<()> {
        let internet = self.get("internet")?;
        gateway.wan().0.iter().try_for_each(|net| internet.swallow(net.addr()))
    }

    /// Undoes [`Network::silence`].
    pub(super) fn heal(&self, gateway: &Gateway) -> Result<()> {
        let internet = self.get("internet")?;
        gateway.wan().0.iter().try_for_each(|net| internet.spare(net.addr()))
    }

    fn add(&mut self, name: &str) -> Result<Netns> {
        let netns = Netns::create(name)?;
        self.netns.insert(name.to_owned(), netns.clone());
        Ok(netns)
    }

    fn site(&mut self, site: &'static Site) -> Result<()> {
        let switch = self.add(&format!("{}-lan", site.short))?;
        switch.bridge("br0", &[])?;
        for gateway in site.gateways {
            self.gateway(site, gateway, &switch)?;
        }
        let host = self.add(&site.host())?;
        plug(&switch, &host, "host", site.host_lan())?;
        // A site with a router of its own learns the way from its gateways; elsewhere there is only one.
        if site.router_asn.is_none() {
            for address in site.gateways[0].lan(site) {
                host.add_default_route(address.addr())?;
            }
        }
        Ok(())
    }

    fn gateway(&mut self, site: &Site, gateway: &Gateway, switch: &Netns) -> Result<()> {
        let netns = self.add(gateway.name)?;
        netns.forward()?;
        plug(switch, &netns, gateway.name, gateway.lan(site))?;
        let internet = self.get("internet")?;
        veth((internet, gateway.name), (&netns, "wan"))?;
        let (ours, theirs) = gateway.wan();
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            internet.add_address(gateway.name, theirs)?;
            netns.add_address("wan", ours)?;
            netns.add_default_route(theirs.addr())?;
        }
        Ok(())
    }

    /// What follows would prove nothing if sites could reach each other without the fabric.
    fn ensure_no_shortcut(&self) -> Result<()> {
        let internet = self.get("internet")?;
        for address in SITES.iter().flat_map(Site::host_addresses) {
            ensure!(internet.route_to(address).is_err(), "the internet itself has a route to {address}");
        }
        Ok(())
    }

    /// How many gateways there are, for people.
    pub(super) fn summary(&self) -> String {
        let gateways = plan::gateways().count();
        format!("{} sites, {gateways} gateways, {} namespaces, IPv4 and IPv6", SITES.len(), self.netns.len())
    }
}

fn plug(switch: &Netns, machine: &Netns, port: &str, addresses: [ipnet::IpNet; 2]) -> Result<()> {
    veth((switch, port), (machine, "lan"))?;
    switch.enslave(port, "br0")?;
    addresses.into_iter().try_for_each(|address| machine.add_address("lan", address))
}

/// Here, and not in the first daemon's log, a person should read what this machine lacks.
fn ensure_tun(device: &Path) -> Result<()> {
    let opened = OpenOptions::new().read(true).write(true).open(device);
    opened.map(drop).map_err(|error| {
        let (device, remedy) = (device.display(), tun_remedy(&error));
        anyhow!("the daemons need {device}, which can't be opened: {error}; {remedy}")
    })
}

fn tun_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "let every user open it, which gives nobody any right beyond his own namespaces (as root: chmod 0666 /dev/net/tun), or run the demo as root"
        }
        io::ErrorKind::NotFound => {
            "load the driver (as root: modprobe tun); in a container, pass the device in (--device /dev/net/tun)"
        }
        _ => "load the driver (as root: modprobe tun)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tun_device_that_cannot_be_opened_is_explained() {
        let missing = ensure_tun(Path::new("/nonexistent/tun")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/tun") && missing.contains("modprobe tun"), "{missing}");
        let denied = tun_remedy(&io::ErrorKind::PermissionDenied.into());
        assert!(denied.contains("chmod 0666 /dev/net/tun") && denied.contains("as root"), "{denied}");
        assert!(ensure_tun(Path::new("/dev/null")).is_ok());
    }
}
