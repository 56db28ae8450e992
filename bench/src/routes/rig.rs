//! The speaker between its two neighbors.

use std::net::Ipv4Addr;

use anyhow::Result;
use ipnet::IpNet;
use isthmus_lab::{link::veth, netns::Netns};

use super::session::Ends;

pub(super) const SPEAKER_ASN: u32 = 4_200_000_000;
/// Who announces.
pub(super) const FEEDER: Ends =
    Ends { asn: 4_200_000_001, address: Ipv4Addr::new(10, 0, 1, 2), neighbor: Ipv4Addr::new(10, 0, 1, 1) };
/// Who is told.
pub(super) const READER: Ends =
    Ends { asn: 4_200_000_002, address: Ipv4Addr::new(10, 0, 2, 2), neighbor: Ipv4Addr::new(10, 0, 2, 1) };
/// Three hosts in a row; they end with this value.
pub(super) struct Rig {
    pub(super) feeder: Netns,
    pub(super) speaker: Netns,
    pub(super) reader: Netns,
}

impl Rig {
    /// Builds it.
    ///
    /// # Errors
    /// When the kernel refuses: which step.
    pub(super) fn build() -> Result<Self> {
        let [feeder, speaker, reader] = ["feeder", "speaker", "reader"].map(Netns::create);
        let rig = Self { feeder: feeder?, speaker: speaker?, reader: reader? };
        for (link, netns, ends) in [("eth0", &rig.feeder, FEEDER), ("eth1", &rig.reader, READER)] {
            veth((&rig.speaker, link), (netns, "eth0"))?;
            rig.speaker.add_address(link, IpNet::new(ends.neighbor.into(), 24)?)?;
            netns.add_address("eth0", IpNet::new(ends.address.into(), 24)?)?;
        }
        Ok(rig)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for netns in [&self.feeder, &self.speaker, &self.reader] {
            // The sandbox takes what is left.
            let _ = netns.clone().delete();
        }
    }
}
