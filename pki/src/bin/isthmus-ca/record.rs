//! The transcript beside a command: who did what with which program, appended before anything leaves, sealed with the CA's key.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use aws_lc_rs::digest;
use isthmus_pki::{
    Authority, Issued,
    facts::{Facts, utc},
    transcript::{Event, Log},
};
use serde_json::Value;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    files::{self, New, Staged, sync_name},
    request::Brought,
};

/// How far the machine's clock may be from the one that people looked at.
const CLOCK_TOLERANCE: Duration = Duration::minutes(5);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Append what is done to this signed transcript.
    #[arg(long, value_name = "FILE")]
    transcript: Option<PathBuf>,
    /// Who takes part; once for each person.
    #[arg(long, value_name = "NAME", requires = "transcript")]
    operator: Vec<String>,
    /// The time that those present confirm, such as 2026-12-01T09:30:00Z; refused if this machine's clock is five minutes off.
    #[arg(long, value_name = "TIME", requires = "transcript", value_parser = time)]
    clock_confirmed: Option<OffsetDateTime>,
}

impl Args {
    /// True if there is to be a transcript.
    pub(crate) fn is_wanted(&self) -> bool {
        self.transcript.is_some()
    }
}

fn time(text: &str) -> Result<OffsetDateTime, String> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|e| format!("{e}; write it like 2026-12-01T09:30:00Z"))
}

/// What is to be appended; nothing at all without `--transcript`.
pub(crate) struct Record(Option<Open>);

struct Open {
    path: PathBuf,
    log: Log,
    /// Length of the file when it was read: somebody else's lines must not get between.
    length: u64,
}

/// Members of an event.
pub(crate) type Members<'a> = &'a [(&'a str, &'a str)];

impl Record {
    /// Reads the transcript, checks its chain and notes who is about to do what.
    pub(crate) fn begin(args: &Args, command: &str) -> anyhow::Result<Self> {
        if let Some(confirmed) = args.clock_confirmed {
            check_clock(confirmed)?;
        }
        let Some(path) = &args.transcript else { return Ok(Self(None)) };
        let existing = read(path)?;
        let log = Log::resume(&existing).with_context(|| path.display().to_string())?;
        let mut record = Self(Some(Open { path: path.clone(), log, length: existing.len() as u64 }));
        let confirmed = args.clock_confirmed.map_or("no".to_owned(), |time| utc(time.unix_timestamp()));
        let mut event = event(
            "begin",
            &[
                ("command", command),
                ("tool", concat!("isthmus-ca ", env!("CARGO_PKG_VERSION"))),
                ("tool_sha256", &own_digest()?),
                ("clock", &utc(crate::now().unix_timestamp())),
                ("clock_confirmed", &confirmed),
                ("randomness", "AWS-LC, seeded by the operating system"),
            ],
        );
        event.insert("operators".into(), args.operator.clone().into());
        record.push(event);
        Ok(record)
    }

    /// For a rehearsal: keeps nothing.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Notes an event.
    pub(crate) fn add(&mut self, kind: &str, members: Members<'_>) {
        self.push(event(kind, members));
    }

    /// Notes a request.
    pub(crate) fn request(&mut self, brought: &Brought) {
        self.add(
            "request",
            &[
                ("file", &brought.name()),
                ("sha256", &brought.sha256()),
                ("key_sha256", &brought.request.public_key.sha256()),
                ("subject", &brought.request.subject),
            ],
        );
    }

    /// Notes a certificate.
    pub(crate) fn certificate(&mut self, file: &Path, issued: &Issued) -> anyhow::Result<()> {
        let facts = Facts::parse(&issued.certificate)?;
        self.add(
            "certificate",
            &[
                ("file", &file.display().to_string()),
                ("sha256", &facts.sha256),
                ("subject", &facts.subject),
                ("uri", &facts.uris.join(" ")),
                ("serial", &facts.serial),
                ("not_before", &utc(facts.not_before)),
                ("not_after", &utc(facts.not_after)),
                ("key_sha256", &facts.key_sha256),
            ],
        );
        Ok(())
    }

    /// Notes why nothing was signed, and seals that too; `open` gives the CA.
    pub(crate) fn refuse(
        mut self,
        why: &anyhow::Error,
        open: impl FnOnce() -> anyhow::Result<Authority>,
    ) -> anyhow::Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        self.add("refusal", &[("why", &format!("{why:#}"))]);
        self.seal(&open()?)
    }

    /// Puts the files on the disk, signs and appends the lines, then gives the files their names. When one of the three fails, neither
    /// the transcript nor a file says that anything was made.
    pub(crate) fn finish(self, by: &Authority, files: &[New<'_>]) -> anyhow::Result<()> {
        let staged = Staged::write(files)?;
        let Some(mut open) = self.0 else { return staged.place() };
        open.seal(by)?;
        staged.place().map_err(|failure| open.take_back(failure))
    }

    fn seal(self, by: &Authority) -> anyhow::Result<()> {
        self.0.map_or(Ok(()), |mut open| open.seal(by))
    }

    fn push(&mut self, event: Event) {
        if let Some(open) = &mut self.0 {
            open.log.push(crate::now(), event);
        }
    }
}

impl Open {
    /// Signs all of it and appends it; the file is on the disk when this returns.
    fn seal(&mut self, by: &Authority) -> anyhow::Result<()> {
        self.log.seal(crate::now(), by)?;
        self.append().with_context(|| self.path.display().to_string())
    }

    fn append(&self) -> anyhow::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o644).open(&self.path)?;
        if file.metadata()?.len() != self.length {
            bail!("somebody else wrote to the transcript meanwhile; nothing was signed, do it again");
        }
        let written = file.write_all(self.log.fresh().as_bytes()).and_then(|()| file.sync_all());
        let written = written.and_then(|()| if self.length == 0 { sync_name(&self.path) } else { Ok(()) });
        if written.is_err() {
            // Half a line would spoil what is there; the write's own error is the one to report.
            let _ = file.set_len(self.length);
        }
        Ok(written?)
    }

    /// Nothing was made after all, and a root that is not there could not even be asked whether its seal holds.
    fn take_back(&self, failure: anyhow::Error) -> anyhow::Error {
        let Err(error) = self.shorten() else { return failure };
        let path = self.path.display();
        failure.context(format!(
            "{path}: its last lines tell of what was not made and can't be taken back ({error}); note that beside it, and begin a new one"
        ))
    }

    fn shorten(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        if file.metadata()?.len() != self.length + self.log.fresh().len() as u64 {
            return Err(io::Error::other("somebody else wrote to it meanwhile"));
        }
        file.set_len(self.length)?;
        file.sync_all()
    }
}

fn event(kind: &str, members: Members<'_>) -> Event {
    let kind = std::iter::once(("kind", kind));
    kind.chain(members.iter().copied()).map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    match files::read_up_to(path, isthmus_pki::transcript::MAX_LEN as u64) {
        Err(e) if files::is_absent(&e) => Ok(Vec::new()),
        other => Ok(other?.to_vec()),
    }
}

fn check_clock(confirmed: OffsetDateTime) -> anyhow::Result<()> {
    let now = crate::now();
    if (now - confirmed).abs() <= CLOCK_TOLERANCE {
        return Ok(());
    }
    let [ours, theirs] = [now, confirmed].map(|time| utc(time.unix_timestamp()));
    bail!(
        "this machine's clock says {ours}, --clock-confirmed {theirs}; set the clock, certificates would get wrong dates"
    )
}

/// SHA-256 of the program that runs: an auditor compares it with that of the release.
fn own_digest() -> anyhow::Result<String> {
    let mut file = File::open("/proc/self/exe").context("this program's own file")?;
    let (mut digest, mut chunk) = (digest::Context::new(&digest::SHA256), vec![0; 1 << 16]);
    loop {
        match file.read(&mut chunk).context("this program's own file")? {
            0 => return Ok(hex::encode(digest.finish())),
            length => digest.update(&chunk[..length]),
        }
    }
}
