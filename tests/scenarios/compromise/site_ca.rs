//! The key of a site's CA is stolen.

use std::{fs, time::Duration};

use isthmus_lab::{mesh, sandbox};

use super::{
    desk::Page,
    fabric::{AWS, AZURE, Fabric, LIMIT, SITES, Site, line},
    thief::Thief,
    workload::{self, Workload, accepts},
};

/// What the page calls the key.
const KEY: &str = "3f2a91c07be45d18";

#[test]
fn a_stolen_site_ca_is_worth_nothing_and_no_workload_notices() {
    let limit = Duration::from_secs(300);
    let name = "compromise::site_ca::a_stolen_site_ca_is_worth_nothing_and_no_workload_notices";
    sandbox::run_with_bins_for(limit, name, |bins| {
        let mut page = Page::section("A site CA");
        let mut fabric = Fabric::start(bins, "10m");
        let token = prepare(&mut fabric);
        let socket = fabric.mesh.node(AWS.issuer).workload_socket();
        assert_eq!(accepts(&socket, &token), Ok(()), "a charter is nothing to a token");
        let stolen = fabric.digits("aws");
        let typed = |line: &str| line.replace(KEY, &stolen);
        let workloads = [AWS.issuer, AWS.member, AZURE.issuer, AZURE.member]
            .map(|n| Workload::connect(&fabric.mesh.node(n).workload_socket()));
        let file = |name: &str| fs::read(fabric.desk.path(name)).unwrap();
        let thief =
            Thief::with_site_ca(&file("aws/site-ca.pem"), &file("aws/site-ca.key"), &file("root/root.pem"));
        let call = thief.call(&AWS);
        call.is_served();
        let other_site = thief.call(&AZURE).ends(LIMIT);
        assert!(!other_site.is_empty(), "a site's CA opens no door of another");
        let abroad = thief.call_from(&AWS, &AZURE);
        abroad.is_served();
        let elsewhere = connections(&fabric, &AZURE);

        // Taint. The thief is of the fleet too, and lags.
        let [status, dry, taint] = &page.next()[..] else { panic!("three commands") };
        let issuer = || Some(fabric.mesh.node(AWS.issuer));
        assert!(fabric.desk.ok(issuer(), &typed(status)).contains(&format!("{stolen} active")));
        let refused = fabric.desk.refused(issuer(), &typed(dry));
        assert!(refused.contains("node gw9 lags") && !refused.contains("gw2"), "{refused}");
        assert!(call.is_open(), "a dry run cuts nobody off");
        let done = fabric.desk.ok(issuer(), &format!("{} --override \"gw9 is not ours\"", typed(taint)));
        assert!(done.contains("ca-crl.pem"), "{done}");
        let reason = call.ends(Duration::from_secs(10));
        assert!(!reason.is_empty());
        thief.call(&AWS).ends(LIMIT);
        abroad.ends(Duration::from_secs(20));
        thief.call_from(&AWS, &AZURE).ends(LIMIT);
        let heir = fabric.key("next");
        workloads[0].until_issued_by(&heir, Duration::from_secs(10));
        assert!(accepts(&socket, &token).is_err(), "keys that the tainted CA endorsed went with it");
        assert_eq!(accepts(&socket, &workload::token(&socket)), Ok(()));
        let waiting =
            fabric.wait_line(AWS.issuer, "intermediate", &format!("{stolen} tainted"), "no CRL in force");
        assert_eq!(waiting["status"], "waiting");

        // The member was told, was cut off, and joins again.
        let of_aws = format!("{stolen} of aws-use1");
        for n in [AWS.member, AZURE.issuer, AZURE.member] {
            fabric.wait_line(n, "fabric", &format!("{of_aws} tainted"), "disk sold on");
        }
        fabric.desk.ok(Some(fabric.mesh.node(AWS.issuer)), &page.next()[0]);
        fabric.carry(&AWS, &fs::read_to_string(fabric.desk.path("join.token")).unwrap());
        let [reload, status] = &page.next()[..] else { panic!("two commands") };
        fabric.desk.ok(Some(fabric.mesh.node(AWS.member)), reload);
        assert!(
            fabric.desk.ok(Some(fabric.mesh.node(AWS.member)), status).contains(&format!("{of_aws} tainted"))
        );
        fabric.wait_line(AWS.issuer, "fleet", "gw2", heir.short());
        fabric.wait_well(&AWS, AWS.member);
        workloads[1].until_issued_by(&heir, Duration::from_secs(60));
        // The one for certificates goes on; that for news is made anew with each that is heard.
        let kept = connections(&fabric, &AZURE).iter().filter(|port| elsewhere.contains(port)).count();
        assert_eq!(kept, 1, "{elsewhere:?}");

        // The root's word: for the site's foreign verifiers, then for every site.
        fabric.draft(
            3,
            &["root"],
            &[(&AWS, "aws", "revoked"), (&AWS, "next", "active"), (&AZURE, "azure", "active")],
            &["lists/crl.pem"],
        );
        fabric.desk.ok(None, &page.next().join("\n"));
        let [revoke, status] = &page.next()[..] else { panic!("two commands") };
        let issuer = || Some(fabric.mesh.node(AWS.issuer));
        fabric.desk.ok(issuer(), "isthmusctl rotate forget gw9");
        fabric.desk.ok(issuer(), &typed(revoke));
        let shown = fabric.desk.ok(issuer(), status);
        assert!(
            shown.contains(&format!("{stolen} revoked")) && shown.contains("a CRL in force names it"),
            "{shown}"
        );
        let again = fabric.desk.ok(issuer(), &typed(revoke));
        assert!(again.contains("revoked already, since") && !again.contains("done:"), "{again}");
        let publish = page.next().remove(0);
        fabric.publish(3, &publish);
        for n in [AZURE.issuer, AZURE.member] {
            fabric.wait_line(n, "fabric", &format!("{of_aws} revoked"), "charter 3 says so");
        }
        assert_eq!(cut(&fabric, AZURE.member), 0.0, "nobody of azure was cut off");
        assert!(cut(&fabric, AWS.issuer) >= 1.0);

        // Meshes of others get the list, and it does them good.
        let cluster = page
            .next()
            .join("\n")
            .replace("--context west", "cacerts-west")
            .replace("pem cacerts", "pem --out cacerts");
        fabric.sign_cluster();
        let checked = fabric.desk.ok(None, &cluster);
        assert!(fabric.desk.path("cacerts-west/ca-crl.pem").exists(), "{checked}");
        foreign_validators_refuse_the_thief(&fabric, &thief);

        // It is all written down.
        let mut audit = page.next();
        let log = fabric.mesh.node(AWS.issuer).state_dir().join("audit.jsonl");
        audit.iter_mut().for_each(|line| {
            *line = line.replace("/var/lib/isthmus/audit.jsonl", &log.display().to_string())
        });
        let whole = fabric.desk.ok(issuer_of(&fabric), &audit.join("\n"));
        assert!(
            whole.contains("agrees with the signed head") && whole.contains("file=\"charter-3.jws\""),
            "{whole}"
        );
        assert!(page.is_over(), "the page has commands that nobody typed");
        thief.call(&AWS).ends(LIMIT);
        workloads.iter().for_each(Workload::is_well);
        // That of the node which had to join again was told to wait; nobody else noticed anything.
        [0, 2, 3].into_iter().for_each(|at| workloads[at].was_never_sent_away());
    });
}

/// Charter 1 with what there is; then a CA in reserve at AWS, and charter 2 with it. As `rotation.md` has it. Returns a token of between.
fn prepare(fabric: &mut Fabric) -> String {
    fabric.draft(1, &["root"], &[(&AWS, "aws", "active"), (&AZURE, "azure", "active")], &[]);
    let sign = "isthmus-ca charter sign --charter charter.toml --root root --transcript transcript.jsonl";
    fabric.desk.ok(None, &format!("{sign} --out charter-1.jws"));
    fabric.publish(1, "isthmusctl rotate root publish charter-1.jws");
    let token = workload::token(&fabric.mesh.node(AWS.issuer).workload_socket());
    let issuer = || Some(fabric.mesh.node(AWS.issuer));
    fabric.desk.ok(issuer(), "isthmusctl rotate intermediate prepare --out next.csr");
    fabric.desk.ok(
        None,
        "isthmus-ca site sign --csr next.csr --root root --site aws-use1 --out next --transcript transcript.jsonl",
    );
    fabric.desk.ok(issuer(), "isthmusctl rotate intermediate install next/site-ca.pem");
    let cas = [(&AWS, "aws", "active"), (&AWS, "next", "prepared"), (&AZURE, "azure", "active")];
    fabric.draft(2, &["root"], &cas, &[]);
    fabric.desk.ok(None, &format!("{sign} --after charter-1.jws --out charter-2.jws"));
    fabric.publish(2, "isthmusctl rotate root publish charter-2.jws");
    for site in SITES {
        assert!(line(fabric.mesh.node(site.issuer), "fabric", "").is_err(), "nobody is refused yet");
    }
    token
}

fn issuer_of(fabric: &Fabric) -> Option<&isthmus_lab::node::Node> {
    Some(fabric.mesh.node(AWS.issuer))
}

/// Connections that ended because their peer was not believed any more.
fn cut(fabric: &Fabric, n: u8) -> f64 {
    mesh::metrics(fabric.mesh.node(n)).unwrap().count("isthmus_tls_connections_ended_total", &[])
}

/// Local ports of the member's connections to its issuer.
fn connections(fabric: &Fabric, site: &Site) -> Vec<String> {
    let netns = fabric.mesh.node(site.member).netns();
    let table = netns.run(|| fs::read_to_string("/proc/thread-self/net/tcp").unwrap()).unwrap();
    // Remote port 51820, established.
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let open = rows.filter(|row| row.len() > 3 && row[2].ends_with(":CA6C") && row[3] == "01");
    open.map(|row| row[1].to_owned()).collect()
}

/// What OpenSSL, Go, rustls and Envoy would say of his certificate with the list, and without it.
fn foreign_validators_refuse_the_thief(fabric: &Fabric, thief: &Thief) {
    let (chain, _) = thief.forge("/ns/pay/sa/api");
    fabric.desk.write("stolen.pem", &isthmus_pki::bundle::to_pem(&chain));
    let verify = "isthmus-ca verify --bundle root/root.pem --chain stolen.pem --as openssl";
    fabric.desk.ok(None, verify);
    let refused = fabric.desk.refused(None, &format!("{verify} --crl lists/crl.pem"));
    assert!(refused.contains("revoked"), "{refused}");
}
