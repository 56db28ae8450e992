//! One question to an HTTP server.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::netns::Netns;

const LIMIT: Duration = Duration::from_secs(5);

/// `GET path` from a server at `address`: status code and the whole answer.
///
/// # Errors
/// When there is no answer, or none of HTTP.
pub fn get(netns: &Netns, address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let answer = netns.run(|| -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })?;
    let answer = answer.with_context(|| format!("GET {path} from {address} in {}", netns.name()))?;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.with_context(|| format!("no status line: {answer:?}"))?, answer))
}
