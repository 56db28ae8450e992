//! What a daemon counts, read as Prometheus reads it.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::get;
use crate::netns::Netns;

/// One reading of `/metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    text: String,
}

impl Metrics {
    /// Reads those of the daemon that listens at `address`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn read(netns: &Netns, address: SocketAddr) -> Result<Self> {
        let (code, text) = get(netns, address, "/metrics")?;
        ensure!(code == 200, "{address} answers with status {code}");
        Ok(Self { text })
    }

    /// The value of the one series of this name that has all of these labels.
    ///
    /// # Errors
    /// When there is none, or several.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let mut found = self.text.lines().filter(|line| is_of(line, name, &labels));
        let line = found.next().with_context(|| format!("no {name} with {labels:?}"))?;
        ensure!(found.next().is_none(), "several {name} with {labels:?}");
        let (_, value) = line.rsplit_once(' ').context("a series without a value")?;
        Ok(value.parse()?)
    }

    /// [`Metrics::value`], 0 where there is none.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.value(name, labels).unwrap_or(0.0)
    }
}

fn is_of(line: &str, name: &str, labels: &[String]) -> bool {
    let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']));
    rest.is_some_and(|rest| labels.iter().all(|label| rest.contains(label.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_one_series() {
        let text = "# TYPE a counter\na{x=\"1\",y=\"2\"} 7\na{x=\"2\",y=\"2\"} 8\na_sum 9\n".to_owned();
        let metrics = Metrics { text };
        assert_eq!(metrics.value("a", &[("x", "1")]).unwrap(), 7.0);
        assert_eq!(metrics.value("a_sum", &[]).unwrap(), 9.0);
        assert!(metrics.value("a", &[("y", "2")]).is_err());
        assert_eq!(metrics.count("b", &[]), 0.0);
    }
}
