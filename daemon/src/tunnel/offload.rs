//! The switches of the packet path: what the operator wants, what the kernel refused, and so what is done.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// One switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offload {
    /// TCP bursts of up to 64 KiB from the TUN device.
    TunTso,
    /// UDP bursts from the TUN device.
    TunUso,
    /// TCP segments are merged before they are written to the TUN device.
    TunTcpGro,
    /// UDP datagrams are merged before they are written to the TUN device.
    TunUdpGro,
    /// Outer datagrams leave several with one send (`UDP_SEGMENT`).
    UdpGso,
    /// Outer datagrams arrive several with one receive (`UDP_GRO`).
    UdpGro,
}

impl Offload {
    /// All switches.
    pub const ALL: [Self; 6] =
        [Self::TunTso, Self::TunUso, Self::TunTcpGro, Self::TunUdpGro, Self::UdpGso, Self::UdpGro];

    /// The name in commands, metrics and the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TunTso => "tun-tso",
            Self::TunUso => "tun-uso",
            Self::TunTcpGro => "tun-tcp-gro",
            Self::TunUdpGro => "tun-udp-gro",
            Self::UdpGso => "udp-gso",
            Self::UdpGro => "udp-gro",
        }
    }

    /// What it does, for a person.
    pub fn description(self) -> &'static str {
        match self {
            Self::TunTso => "TCP bursts from the TUN device",
            Self::TunUso => "UDP bursts from the TUN device",
            Self::TunTcpGro => "TCP merged before it is written to the TUN device",
            Self::TunUdpGro => "UDP merged before it is written to the TUN device",
            Self::UdpGso => "several outer datagrams with one send",
            Self::UdpGro => "several outer datagrams with one receive",
        }
    }

    /// The switch of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|offload| offload.as_str() == name)
    }
}

/// A switch as commands show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadStatus {
    /// Which one.
    pub offload: Offload,
    /// The operator wants it.
    pub wanted: bool,
    /// It is in use.
    pub active: bool,
    /// Why it is in that state.
    pub reason: String,
}

/// Which offloads to use, over all threads. Reading a switch costs one relaxed load.
#[derive(Debug)]
pub(super) struct Offloads {
    active: [AtomicBool; 6],
    wanted: [AtomicBool; 6],
    refused: Mutex<[Option<String>; 6]>,
}

impl Offloads {
    /// All as `wanted` says.
    pub(super) fn new(wanted: impl Fn(Offload) -> bool) -> Self {
        let flags = || Offload::ALL.map(|offload| AtomicBool::new(wanted(offload)));
        Self { active: flags(), wanted: flags(), refused: Mutex::default() }
    }

    /// True while it is to be used.
    pub(super) fn is_on(&self, offload: Offload) -> bool {
        self.active[offload as usize].load(Ordering::Relaxed)
    }

    /// The operator's word. Switching on forgets what the kernel refused before: it is tried again.
    pub(super) fn want(&self, offload: Offload, on: bool) {
        let mut refused = self.refused();
        refused[offload as usize] = None;
        self.wanted[offload as usize].store(on, Ordering::Relaxed);
        self.active[offload as usize].store(on, Ordering::Relaxed);
    }

    /// The kernel does not do it; true if that is news.
    pub(super) fn refuse(&self, offload: Offload, why: String) -> bool {
        let mut refused = self.refused();
        let news = self.active[offload as usize].swap(false, Ordering::Relaxed);
        if news {
            tracing::warn!(offload = offload.as_str(), reason = why, "offload switched off");
            refused[offload as usize] = Some(why);
        }
        news
    }

    /// Why the kernel does not do it.
    pub(super) fn refusal(&self, offload: Offload) -> Option<String> {
        self.refused()[offload as usize].clone()
    }

    /// Every switch.
    pub(super) fn status(&self) -> Vec<OffloadStatus> {
        let refused = self.refused();
        let status = |offload: Offload| {
            let wanted = self.wanted[offload as usize].load(Ordering::Relaxed);
            let reason = match &refused[offload as usize] {
                Some(why) => why.clone(),
                None if wanted => "default, or switched on".into(),
                None => "switched off".into(),
            };
            OffloadStatus { offload, wanted, active: self.is_on(offload), reason }
        };
        Offload::ALL.into_iter().map(status).collect()
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, [Option<String>; 6]> {
        // Nothing panics while it is held.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_and_operator_both_have_a_say() {
        let offloads = Offloads::new(|offload| offload != Offload::UdpGro);
        assert!(offloads.is_on(Offload::UdpGso) && !offloads.is_on(Offload::UdpGro));
        assert!(offloads.refuse(Offload::UdpGso, "EIO".into()));
        assert!(!offloads.refuse(Offload::UdpGso, "EIO again".into()));
        let status = |offload: Offload| offloads.status()[offload as usize].clone();
        let refused = status(Offload::UdpGso);
        assert_eq!((refused.wanted, refused.active, refused.reason.as_str()), (true, false, "EIO"));
        assert_eq!(status(Offload::UdpGro).reason, "switched off");
        offloads.want(Offload::UdpGso, true);
        assert!(offloads.is_on(Offload::UdpGso));
        offloads.want(Offload::UdpGso, false);
        assert!(!offloads.is_on(Offload::UdpGso));
        for offload in Offload::ALL {
            assert_eq!(Offload::named(offload.as_str()), Some(offload));
            assert_eq!(Offload::ALL[offload as usize], offload);
        }
    }
}
