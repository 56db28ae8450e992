//! Pages for operators, tried as they are written: their fenced blocks, and a shell as an operator on a node has it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{bins::Bins, files::write_secret, node::Node};

/// A page below `docs/`.
#[derive(Debug)]
pub struct Page {
    name: String,
    text: String,
}

struct Block<'a> {
    fence: &'a str,
    indent: &'a str,
    text: String,
}

impl Page {
    /// Reads it from this source tree.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn read(name: &str) -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no tree around the tests")?;
        let path = path.join("docs").join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self { name: name.to_owned(), text })
    }

    /// The block of this language that has these words in it.
    ///
    /// # Errors
    /// When none has, or several: then the test must say more exactly what it means.
    pub fn block(&self, language: &str, words: &str) -> Result<String> {
        let mut found = self.blocks(language).into_iter().filter(|block| block.contains(words));
        let block =
            found.next().with_context(|| format!("{} has no {language} block with {words:?}", self.name))?;
        ensure!(found.next().is_none(), "{} has several {language} blocks with {words:?}", self.name);
        Ok(block)
    }

    /// All blocks of this language.
    pub fn blocks(&self, language: &str) -> Vec<String> {
        let (mut blocks, mut open) = (Vec::new(), None);
        for line in self.text.lines() {
            // A block in a list stands as far in as the list does.
            let (indent, text) = line.split_at(line.len() - line.trim_start().len());
            match (text.strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(fence), None) => open = Some(Block { fence, indent, text: String::new() }),
                (None, Some(block)) => {
                    block.text += line.strip_prefix(block.indent).unwrap_or(text);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        blocks.into_iter().filter(|block| block.fence == language).map(|block| block.text).collect()
    }

    /// True if the page says so, wherever its lines are broken.
    pub fn says(&self, words: &str) -> bool {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        flat(&self.text).contains(&flat(words))
    }
}

/// Lines of shell as an operator types them at `node`: `isthmusctl` asks its daemon, `isthmus-ca` is there, and files without a path
/// are in the node's directory. The first command that fails ends it.
///
/// # Errors
/// When a command fails: what was said.
pub fn shell(node: &Node, bins: &Bins, script: &str) -> Result<String> {
    let path = tools(node, bins)?;
    let mut command = node.netns().command("sh")?;
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let dirs = [path].into_iter().chain(std::env::split_paths(&inherited));
    command.args(["-euc", script]).current_dir(node.dir()).env("PATH", std::env::join_paths(dirs)?);
    command.env("SPIFFE_ENDPOINT_SOCKET", format!("unix://{}", node.workload_socket().display()));
    let output = command.output().context("running sh")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script}\non {}: {}: {complaint}", node.name(), output.status);
    Ok(said)
}

/// Where the programs are, by the names that pages call them.
fn tools(node: &Node, bins: &Bins) -> Result<PathBuf> {
    let dir = node.dir().join("bin");
    fs::create_dir_all(&dir)?;
    let program = |name: &str, command: String| -> Result<()> {
        let file = dir.join(name);
        write_secret(&file, &format!("#!/bin/sh\nexec {command} \"$@\""))?;
        Ok(fs::set_permissions(&file, fs::Permissions::from_mode(0o700))?)
    };
    program("isthmusctl", format!("'{}' --socket '{}'", bins.isthmusctl.display(), node.socket().display()))?;
    program("isthmus-ca", format!("'{}'", bins.isthmus_ca.display()))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_language_and_words() {
        let text = "# A\n\n```sh\na one\n```\nand\n```toml\nx = 1\n```\n\n   ```sh\n   in a list\n     more\n   ```\n```sh\na two\n```\nwords over\nlines\n";
        let page = Page { name: "a page".into(), text: text.into() };
        assert_eq!(page.blocks("sh"), ["a one\n", "in a list\n  more\n", "a two\n"]);
        assert_eq!(page.block("toml", "x").unwrap(), "x = 1\n");
        assert!(page.block("sh", "a ").unwrap_err().to_string().contains("several"));
        assert!(page.block("sh", "b").unwrap_err().to_string().contains("no sh block"));
        assert!(page.says("words over lines") && !page.says("other words"));
    }
}
