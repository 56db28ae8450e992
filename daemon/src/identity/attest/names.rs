//! Names of users and groups, from wherever this machine keeps them (nsswitch.conf). May ask the network: not for threads that others
//! wait for.

use nix::unistd::{Gid, Group, Uid, User};

/// `None`: nobody has this number.
pub(super) fn user(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// `None`: no group has this number.
pub(super) fn group(gid: u32) -> Option<String> {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_most_numbers_have_none() {
        assert_eq!(user(0).as_deref(), Some("root"));
        assert_eq!(group(0).as_deref(), Some("root"));
        assert_eq!((user(4_200_000_001), group(4_200_000_001)), (None, None));
    }
}
