//! Collects what is wrong with a configuration file, each problem with its place and its remedy.

use std::{
    fmt,
    ops::Range,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use toml::Spanned;
use zeroize::Zeroizing;

use crate::secret_file::{self, Rule, plain};

/// One thing that is wrong.
#[derive(Debug)]
pub struct Problem {
    source: NamedSource<Arc<String>>,
    span: Range<usize>,
    message: String,
    help: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(None, self.span.clone()))))
    }
}

impl Problem {
    /// `FILE:LINE: reason (remedy)`, for a log line.
    pub fn one_line(&self) -> String {
        let before = &self.source.inner()[..self.span.start.min(self.source.inner().len())];
        let line = before.matches('\n').count() + 1;
        format!("{}:{line}: {} ({})", self.source.name(), self.message, self.help)
    }
}

/// The file under examination, and what was found wrong with it so far.
pub(crate) struct Checker<'a> {
    path: &'a Path,
    text: Arc<String>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// The known word that looks most like this one, if it looks like it at all.
pub(crate) fn likely<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |name: &str| strsim::jaro_winkler(word, name);
    known.filter(|name| alike(name) > 0.8).max_by(|a, b| alike(a).total_cmp(&alike(b)))
}

impl<'a> Checker<'a> {
    pub(crate) fn new(path: &'a Path, text: &str) -> Self {
        Self { path, text: Arc::new(text.to_owned()), problems: Vec::new(), warnings: Vec::new() }
    }

    /// Problems, and what works but is hardly meant so.
    pub(crate) fn finish(self) -> (Vec<Problem>, Vec<Problem>) {
        (self.problems, self.warnings)
    }

    /// Records a problem at a byte range of the file.
    pub(crate) fn problem(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let problem = self.found(span, message.into(), help.into());
        self.problems.push(problem);
    }

    /// Records something that works, and is hardly meant so.
    pub(crate) fn warning(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let warning = self.found(span, message.into(), help.into());
        self.warnings.push(warning);
    }

    fn found(&self, span: Range<usize>, message: String, help: String) -> Problem {
        let source = NamedSource::new(self.path.display().to_string(), Arc::clone(&self.text));
        Problem { source, span, message, help }
    }

    /// Records `problem` unless `ok`; returns `ok`.
    pub(crate) fn require<T>(&mut self, ok: bool, at: &Spanned<T>, message: &str, help: &str) -> bool {
        if !ok {
            self.problem(at.span(), message, help);
        }
        ok
    }

    /// Paths in the file are relative to the file, not to wherever the daemon was started.
    pub(crate) fn path(&self, raw: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(raw)
    }

    /// A duration such as "300ms", within `range`.
    pub(crate) fn duration(
        &mut self,
        raw: &Spanned<String>,
        range: std::ops::RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let help = format!(
            "write a duration from {} to {}, for example \"{}\"",
            humantime::format_duration(*range.start()),
            humantime::format_duration(*range.end()),
            humantime::format_duration(*range.start())
        );
        match humantime::parse_duration(raw.get_ref()) {
            Ok(value) if range.contains(&value) => Some(value),
            Ok(_) => {
                self.problem(raw.span(), "this duration is out of range", help);
                None
            }
            Err(error) => {
                self.problem(raw.span(), format!("this is not a duration: {error}"), help);
                None
            }
        }
    }

    /// A prefix without host bits, such as 10.20.0.0/16.
    pub(crate) fn prefix(&mut self, raw: &Spanned<String>) -> Option<IpNet> {
        let net = self.address_with_length(raw)?;
        if net.trunc() == net {
            return Some(net);
        }
        let help = format!(
            "write \"{}\" for the network or \"{}\" for the host",
            net.trunc(),
            IpNet::from(net.addr())
        );
        self.problem(raw.span(), format!("{net} has bits set behind its prefix length"), help);
        None
    }

    /// An address with its prefix length, such as 10.99.0.1/24.
    pub(crate) fn address_with_length(&mut self, raw: &Spanned<String>) -> Option<IpNet> {
        let parsed = raw.get_ref().parse::<IpNet>();
        if parsed.is_err() {
            let message =
                format!("\"{}\" is not an address with a prefix length", raw.get_ref().escape_debug());
            let help =
                "write ADDRESS/LENGTH, with a length up to 32 for IPv4 and 128 for IPv6: \"10.20.0.0/16\"";
            self.problem(raw.span(), message, help);
        }
        parsed.ok()
    }

    /// Reads a file that holds a secret: it must be a regular file that nobody but its owner can read.
    pub(crate) fn secret_file(&mut self, raw: &Spanned<PathBuf>, what: &str) -> Option<Zeroizing<Vec<u8>>> {
        let path = self.path(raw.get_ref());
        match secret_file::read(&path, Rule::Private) {
            Ok(bytes) => Some(bytes),
            Err(refusal) => {
                let message = format!("{what} {}: {refusal}", path.display());
                self.problem(raw.span(), message, refusal.remedy(&path));
                None
            }
        }
    }

    /// A path for a unix socket, which the kernel limits to 107 bytes (unix(7), sun_path).
    pub(crate) fn socket(&mut self, raw: &Spanned<PathBuf>) -> PathBuf {
        let path = self.path(raw.get_ref());
        let fits = path.as_os_str().len() <= 107;
        self.require(fits, raw, "this path is too long for a unix socket", "use a path of at most 107 bytes");
        path
    }

    /// Checks that a public file is there and can be read.
    pub(crate) fn readable_file(&mut self, raw: &Spanned<PathBuf>, what: &str) -> Option<PathBuf> {
        let path = self.path(raw.get_ref());
        match open(&path).and_then(|file| file.metadata()) {
            Ok(meta) if meta.is_file() => Some(path),
            Ok(_) => {
                let message = format!("{what} {} is not a file", path.display());
                self.problem(raw.span(), message, "name the file, not its directory");
                None
            }
            Err(error) => {
                let message = format!("{what} {}: {}", path.display(), plain(&error));
                self.problem(raw.span(), message, "put the file there, or correct the path");
                None
            }
        }
    }
}

/// Opens without waiting: a path that names a FIFO by mistake must not hang the daemon.
pub(crate) fn open(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}
