//! What has to be gathered of callers. Nothing is looked up that no entry asks for.

use crate::identity::config::Selector;

/// Kinds of facts that entries ask for, beyond user and group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Names of user and groups, supplementary groups with them.
    pub names: bool,
    /// Supplementary groups.
    pub groups: bool,
    /// Path of the executable.
    pub path: bool,
    /// Hash of the executable.
    pub sha256: bool,
    /// systemd unit.
    pub unit: bool,
    /// Pod.
    pub pod: bool,
}

impl Wants {
    /// What these selectors are held against.
    pub fn of(selectors: &[Selector]) -> Self {
        selectors.iter().map(Self::one).fold(Self::default(), Self::and)
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            names: self.names || other.names,
            groups: self.groups || other.groups,
            path: self.path || other.path,
            sha256: self.sha256 || other.sha256,
            unit: self.unit || other.unit,
            pod: self.pod || other.pod,
        }
    }

    /// Does the answer hang on which program runs?
    pub(super) fn executable(self) -> bool {
        self.path || self.sha256
    }

    /// Does the answer hang on the cgroup?
    pub(super) fn cgroup(self) -> bool {
        self.unit || self.pod
    }

    fn one(selector: &Selector) -> Self {
        let none = Self::default();
        match selector {
            Selector::Uid(_) | Selector::Gid(_) => none,
            Selector::SupplementaryGid(_) => Self { groups: true, ..none },
            Selector::User(_) | Selector::Group(_) => Self { names: true, ..none },
            Selector::Path(_) => Self { path: true, ..none },
            Selector::Sha256(_) => Self { sha256: true, ..none },
            Selector::Unit(_) | Selector::UserUnit(_) => Self { unit: true, ..none },
            _ => Self { pod: true, ..none },
        }
    }
}
