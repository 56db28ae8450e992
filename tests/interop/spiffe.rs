//! The SPIFFE libraries that everybody uses, unchanged, at the Workload API of a real `isthmusd`: py-spiffe, go-spiffe, the SPIRE agent's
//! commands, and raw gRPC for what no library would send.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "spiffe/program.rs"]
mod program;
#[path = "spiffe/rig.rs"]
mod rig;
#[path = "spiffe/tls.rs"]
mod tls;

use isthmus_lab::{
    issuer::{API, OTHER, entry},
    sandbox,
};
use serde_json::{Value, json};

use program::{Language, Program, installed};
use rig::Rig;

/// Runs `body` in a sandbox; skips, and says so, where the programs are not installed.
fn run(test: &str, body: impl FnOnce(Rig)) {
    if installed(test) {
        sandbox::run_with_bins(test, |bins| body(Rig::start(bins)));
    }
}

/// The first state at once; a new one when site CA or bundle change; nothing once the entry is gone, until it is back.
fn follows_every_change(rig: &mut Rig, language: Language) {
    let mut watcher = rig.program(language, &["watch"]);
    let first = watcher.line();
    let serial = language.serial(&first);
    assert_eq!(language.id(&first), API, "{first}");
    assert_eq!(first["roots"], json!({ "test.example": 1 }), "{first}");

    rig.renew_site_ca().unwrap();
    let second = watcher.line();
    assert_eq!(language.id(&second), API, "{second}");
    assert_ne!(language.serial(&second), serial, "{second}");

    rig.add_root().unwrap();
    let third = watcher.line();
    assert_eq!(third["roots"], json!({ "test.example": 2 }), "{third}");

    rig.reload(&entry("/other", "unix:uid:4242")).unwrap();
    if let Language::Go = language {
        let denied = watcher.line();
        assert!(denied["error"].as_str().unwrap().contains("no identity issued"), "{denied}");
    }
    // py-spiffe says nothing and asks again; both come back.
    rig.reload(&entry("/ns/payments/sa/api", "unix:uid:0")).unwrap();
    let back = wait_for_state(&mut watcher);
    assert_eq!(language.id(&back), API, "{back}");
}

fn wait_for_state(watcher: &mut Program) -> Value {
    loop {
        let line = watcher.line();
        if line.get("error").is_none() {
            return line;
        }
    }
}

#[test]
fn py_spiffe_follows_every_change() {
    run("py_spiffe_follows_every_change", |mut rig| follows_every_change(&mut rig, Language::Python));
}

#[test]
fn go_spiffe_follows_every_change() {
    run("go_spiffe_follows_every_change", |mut rig| follows_every_change(&mut rig, Language::Go));
}

#[test]
fn the_spire_agents_commands_fetch_from_us() {
    run("the_spire_agents_commands_fetch_from_us", |rig| {
        let socket = rig.socket_text();
        let fetched = rig.output(Language::Go, &["spire", "fetch-x509", "-socketPath", &socket]);
        assert!(fetched.contains(API) && fetched.contains("Received 1 svid"), "{fetched}");
    });
}

/// `spire-agent api watch`: the first state at once, and each change as it comes.
#[test]
fn the_spire_agent_watches_every_change() {
    run("the_spire_agent_watches_every_change", |mut rig| {
        let socket = rig.socket_text();
        let mut watcher = rig.program(Language::Go, &["spire", "watch", "-socketPath", &socket]);
        let mut update = |last: &str| {
            watcher.line_of("Received 1 svid");
            let id = watcher.line_of("SPIFFE ID:");
            assert!(id.ends_with(API), "{id}");
            watcher.line_of("Intermediate #1 Valid Until:");
            watcher.line_of(last);
        };
        update("CA #1 Valid Until:");
        rig.renew_site_ca().unwrap();
        update("CA #1 Valid Until:");
        rig.add_root().unwrap();
        update("CA #2 Valid Until:");
    });
}

#[test]
fn whoever_is_not_entitled_is_told_so_in_words_that_clients_know() {
    run("whoever_is_not_entitled_is_told_so_in_words_that_clients_know", |mut rig| {
        rig.reload(&entry("/other", "unix:uid:4242")).unwrap();
        let refused = rig.program(Language::Python, &["fetch"]).line();
        let refused = refused["refusal"].as_str().unwrap();
        assert!(refused.contains("no identity issued") && refused.contains("PERMISSION_DENIED"), "{refused}");
        let refused = rig.refusal(Language::Go, &["spire", "fetch-x509", "-socketPath", &rig.socket_text()]);
        assert!(refused.contains("no identity issued"), "{refused}");
    });
}

#[test]
fn python_go_and_we_trust_each_other_and_nobody_else() {
    run("python_go_and_we_trust_each_other_and_nobody_else", |rig| {
        for language in [Language::Python, Language::Go] {
            tls::we_are_the_client(&rig, language);
            tls::we_are_the_server(&rig, language);
        }
        let mut server = rig.program(Language::Python, &["serve"]);
        let address = server.line()["address"].as_str().unwrap().to_owned();
        assert_eq!(rig.program(Language::Go, &["dial", &address, API]).line()["server_said"], API);
        assert_eq!(server.line()["client"], API);
        let refused = rig.refusal(Language::Go, &["dial", &address, OTHER]);
        assert!(refused.contains("unexpected ID"), "{refused}");
    });
}

#[test]
fn calls_that_no_library_makes_get_the_codes_of_the_standard() {
    run("calls_that_no_library_makes_get_the_codes_of_the_standard", |rig| {
        let mut client = rig.program(Language::Python, &["raw"]);
        let methods =
            ["FetchX509SVID", "FetchX509Bundles", "FetchJWTBundles", "FetchJWTSVID", "ValidateJWTSVID"];
        for method in methods {
            let line = client.line();
            assert_eq!(line["method"], method);
            for header in ["none", "True", "twice", "other"] {
                assert_eq!(line["codes"][header], "INVALID_ARGUMENT", "{method}, header {header}");
            }
            // A token that is none is the caller's mistake.
            let with_header = if method == "ValidateJWTSVID" { "INVALID_ARGUMENT" } else { "OK" };
            assert_eq!(line["codes"]["true"], with_header, "{method}");
        }
        let codes = client.line();
        for (call, code) in [
            ("empty_audience", "INVALID_ARGUMENT"),
            ("blank_audience", "INVALID_ARGUMENT"),
            ("not_an_id", "INVALID_ARGUMENT"),
            ("not_entitled", "PERMISSION_DENIED"),
            ("validate_nothing", "INVALID_ARGUMENT"),
            ("validate_for_nobody", "INVALID_ARGUMENT"),
            ("unknown_method", "UNIMPLEMENTED"),
        ] {
            assert_eq!(codes[call], code, "{call}");
        }
        let services = client.line()["services"].to_string();
        assert!(services.contains("SpiffeWorkloadAPI"), "{services}");
    });
}

#[test]
fn foreign_libraries_accept_our_tokens_and_we_theirs() {
    run("foreign_libraries_accept_our_tokens_and_we_theirs", |rig| {
        let python = rig.program(Language::Python, &["jwt", "reports"]).line();
        assert_eq!((&python["local"], &python["remote"]), (&json!(API), &json!(API)), "{python}");
        assert_eq!(python["subject"], API);
        assert_eq!(python["header"]["alg"], "ES256");
        assert_eq!(python["lifetime"], 300);
        assert!(python["wrong_audience"].as_str().unwrap().contains("INVALID_ARGUMENT"), "{python}");
        let go = rig.program(Language::Go, &["jwt", "reports", "billing"]).line();
        assert_eq!((&go["local"], &go["remote"]), (&json!(API), &json!(API)), "{go}");
        assert_eq!(go["audience"], json!(["reports", "billing"]));
        assert_eq!(go["wrong_audience_refused"], true);

        let socket = rig.socket_text();
        let fetch = ["spire", "fetch-jwt", "-socketPath", &socket, "-audience", "reports", "-output", "json"];
        let fetched: Value = serde_json::from_str(&rig.output(Language::Go, &fetch)).unwrap();
        let token = fetched[0]["svids"][0]["svid"].as_str().unwrap();
        let validate =
            ["spire", "validate-jwt", "-socketPath", &socket, "-audience", "reports", "-svid", token];
        let valid = rig.output(Language::Go, &validate);
        assert!(valid.contains("SVID is valid") && valid.contains(API), "{valid}");
    });
}
