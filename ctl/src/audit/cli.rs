//! Arguments of `isthmusctl audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, UtcOffset};

/// What to do with a log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Shows the signed head: how many records it covers, the hash over them, and who signed it.
    Head {
        #[command(flatten)]
        log: Log,
        #[command(flatten)]
        trust: Trust,
    },
    /// Checks every line of every file, and all of them against the signed head; exits with 1 at the first that is wrong.
    Verify {
        #[command(flatten)]
        log: Log,
        #[command(flatten)]
        trust: Trust,
        /// A head that was kept: the log must begin with all that it covers. May be given several times.
        #[arg(long = "consistent-with", value_name = "HEAD")]
        since: Vec<PathBuf>,
    },
    /// Lists records; all conditions must hold.
    Search {
        #[command(flatten)]
        log: Log,
        #[command(flatten)]
        query: Conditions,
    },
    /// Proves that a record is in the log under its signed head, or that the head continues one that was kept (RFC 9162 section 2.1).
    Prove {
        #[command(flatten)]
        log: Log,
        #[command(flatten)]
        what: Statement,
    },
    /// Checks a proof of `prove --since` where the head was kept; needs no log.
    Check {
        /// What `isthmusctl audit prove --since HEAD -o json` printed.
        proof: PathBuf,
        /// The head that was kept.
        #[arg(long = "consistent-with", value_name = "HEAD")]
        since: PathBuf,
        #[command(flatten)]
        trust: Trust,
    },
}

/// What is to be proven.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Statement {
    /// That the certificate with this serial number is in the log.
    #[arg(long, value_name = "HEX")]
    pub(crate) serial: Option<String>,
    /// That the log still has all that this head covers: a copy of the head file, or what `isthmusctl audit head -o json` printed.
    #[arg(long, value_name = "HEAD")]
    pub(crate) since: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Log {
    /// The newest file of the log; full ones beside it are read as well.
    #[arg(default_value = "/var/lib/isthmus/audit.jsonl")]
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Trust {
    /// Root certificates that the signer of the head must hang on.
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Conditions {
    /// SPIFFE ID; with `*` at its end all that begin so.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Serial number of a certificate, or ID of a key for tokens.
    #[arg(long, value_name = "HEX")]
    pub(crate) serial: Option<String>,
    /// Not before this day or moment, such as 2026-06-01 or 2026-06-01T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<String>,
    /// x509, jwt, refused, suppressed, jwt-key, opened, torn, resumed or operator.
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// The last N of them.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: usize,
}

/// As records write it, or the beginning of that.
fn since(text: &str) -> Result<String, String> {
    if Date::parse(text, format_description!("[year]-[month]-[day]")).is_ok() {
        return Ok(text.to_owned());
    }
    let moment = OffsetDateTime::parse(text, &Rfc3339).ok();
    moment
        .map(|moment| moment.to_offset(UtcOffset::UTC).unix_timestamp())
        .map(isthmus_pki::facts::utc)
        .ok_or_else(|| {
            "expected a day such as 2026-06-01, or a moment such as 2026-06-01T12:00:00Z".to_owned()
        })
}

#[cfg(test)]
mod cli_tests {
    use super::*;

    #[test]
    fn a_moment_is_taken_to_utc() {
        assert_eq!(since("2026-06-01").as_deref(), Ok("2026-06-01"));
        assert_eq!(since("2026-06-01T14:00:00+02:00").as_deref(), Ok("2026-06-01T12:00:00Z"));
        assert!(since("yesterday").is_err() && since("2026-13-01").is_err());
    }
}
