//! Pages that name tests must name tests that exist.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust file below a directory, build output aside.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let below = dirs.iter().filter(|path| !path.ends_with("target")).flat_map(|path| sources(path));
    rust.chain(below).collect()
}

/// `pki/src/jwt/tests.rs` is `pki::jwt`: what says that it is a test or a source is left out below the package.
fn module(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap().with_extension("");
    let parts = path.iter().map(|part| part.to_str().unwrap()).enumerate();
    let told = parts.filter(|(at, part)| *at == 0 || !["src", "tests", "mod", "main", "lib"].contains(part));
    told.map(|(_, part)| part).collect::<Vec<_>>().join("::")
}

/// Names of the functions that stand behind a test attribute.
fn tests_in(source: &str) -> Vec<&str> {
    let (mut names, mut marked) = (Vec::new(), false);
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| marked && !line.starts_with("//")) {
            names.extend(rest.split(['(', '<']).next());
            marked = false;
        }
    }
    names
}

fn all_tests() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for path in ["ctl", "daemon", "pki", "tests"].iter().flat_map(|package| sources(&root().join(package))) {
        let (module, source) = (module(&path), fs::read_to_string(&path).unwrap());
        all.extend(tests_in(&source).iter().map(|name| format!("{module}::{name}")));
    }
    all
}

/// What stands between backquotes in a table's last column.
fn named(page: &str) -> Vec<Vec<&str>> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.ends_with(" |"));
    let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    last.filter(|cell| *cell != "test").map(|cell| cell.split('`').skip(1).step_by(2).collect()).collect()
}

#[test]
fn each_test_that_the_page_on_spiffe_names_exists() {
    let page = fs::read_to_string(root().join("docs/reference/spiffe.md")).unwrap();
    let (rows, tests) = (named(&page), all_tests());
    assert!(rows.len() > 80, "only {} rows: is the page read as it is written?", rows.len());
    assert!(rows.iter().all(|row| !row.is_empty()), "a row without a test");
    let missing: Vec<_> = rows.iter().flatten().filter(|name| !tests.contains(**name)).collect();
    assert!(missing.is_empty(), "not there, or elsewhere: {missing:#?}");
}

#[test]
fn each_test_that_the_page_on_bgp_names_exists() {
    let page = fs::read_to_string(root().join("docs/reference/bgp.md")).unwrap();
    let rows = named(&page);
    let whole = |name: &str| name.strip_prefix("bgp::").map(|rest| format!("daemon::core::bgp::{rest}"));
    let names: Vec<_> = rows.iter().flatten().map(|name| whole(name).unwrap_or((*name).into())).collect();
    assert!(names.len() > 80, "only {} tests: is the page read as it is written?", names.len());
    let tests = all_tests();
    let missing: Vec<_> = names.iter().filter(|name| !tests.contains(*name)).collect();
    assert!(missing.is_empty(), "not there, or elsewhere: {missing:#?}");
    let features = page.split("## Errors in UPDATE").next().unwrap();
    let unproven = features.lines().filter(|line| line.starts_with("| ") && line.ends_with("| - |"));
    assert_eq!(unproven.collect::<Vec<_>>(), [""; 0], "rows without a test");
}

#[test]
fn a_function_without_the_attribute_is_no_test() {
    let source = "#[test]\nfn one() {}\nfn helper() {}\n#[tokio::test(flavor = \"x\")]\nasync fn two() {}\n";
    assert_eq!(tests_in(source), ["one", "two"]);
    assert_eq!(module(&root().join("pki/src/jwt/tests.rs")), "pki::jwt");
    assert_eq!(module(&root().join("tests/interop/spiffe.rs")), "tests::interop::spiffe");
    assert_eq!(
        named("| a | test |\n|---|---|\n| `x` | `a::b`, `c::d` |\n| y | none |"),
        [vec!["a::b", "c::d"], vec![]]
    );
}
