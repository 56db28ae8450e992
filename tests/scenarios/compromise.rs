//! The page on incidents, typed command for command at a fabric of two sites, while a thief uses what he has stolen.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

mod compromise {
    mod desk;
    mod fabric;
    mod root;
    mod site_ca;
    mod thief;
    mod workload;
}
