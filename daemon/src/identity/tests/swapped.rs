//! Files as Kubernetes mounts them: links into a directory that is swapped whole.

use tokio::time::Instant;

use super::{watching::Watch, *};

/// What the kubelet's AtomicWriter does with a mounted Secret: `site-ca.pem` leads through `..data`, which a rename moves to the next
/// directory.
fn swap(files: &Files, number: usize) {
    let (current, next) = (files.path("..data"), files.path("..data_tmp"));
    let (before, after) = (fs::read_link(&current).ok(), format!("..{number}"));
    fs::create_dir(files.path(&after)).unwrap();
    for name in ["site-ca.pem", "site-ca.key"] {
        // Written to the same second, and of the same length: neither tells that it is another file.
        fs::File::open(files.path(name)).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        fs::rename(files.path(name), files.path(&after).join(name)).unwrap();
        symlink(PathBuf::from("..data").join(name), files.path(name)).unwrap();
    }
    symlink(&after, &next).unwrap();
    fs::rename(&next, &current).unwrap();
    if let Some(before) = before {
        fs::remove_dir_all(files.dir.path().join(before)).unwrap();
    }
}

// istio#57271, #61161, #14539, linkerd2#15109: a swap was missed now and then, for good.
#[tokio::test]
async fn files_that_kubernetes_swaps_are_read_at_each_reload() {
    let node = Node::new(vec![hour("/a")]).await;
    for number in 0..100 {
        node.files.new_site(NODE.0);
        swap(&node.files, number);
        let wanted = node.files.site().facts().serial.clone();
        let issuing = || node.handle.current_issuer().unwrap().certificate().serial.clone();
        assert_ne!(issuing(), wanted);
        node.apply(vec![hour("/a")]).await;
        assert_eq!(issuing(), wanted, "swap {number}");
    }
    let first = node.fetch().await.unwrap().message().await.unwrap().unwrap();
    assert_eq!(check(&node.files, &first).len(), 1);
    let chain = bundle::certificates(&first.svids[0].x509_svid).unwrap();
    assert_eq!(&chain[1], node.files.site().certificate());
}

fn issuing(node: &Node) -> String {
    node.handle.current_issuer().unwrap().certificate().serial.clone()
}

/// Two looks at the same: what has changed is loaded.
async fn look_twice(watch: &mut Watch, node: &Node) {
    for _ in 0..2 {
        watch.look(&node.handle, Instant::now()).await;
    }
}

#[tokio::test]
async fn files_that_are_swapped_without_a_signal_are_seen() {
    let (node, mut watch) = (Node::new(vec![hour("/a")]).await, Watch::default());
    let mut stream = node.fetch().await.unwrap();
    stream.message().await.unwrap().unwrap();
    for number in 0..3 {
        let before = issuing(&node);
        node.files.new_site(NODE.0);
        swap(&node.files, number);
        watch.look(&node.handle, Instant::now()).await;
        assert_eq!(issuing(&node), before, "they may be half written yet");
        watch.look(&node.handle, Instant::now()).await;
        assert_eq!(issuing(&node), node.files.site().facts().serial, "swap {number}");
        let pushed = stream.message().await.unwrap().unwrap();
        let chain = bundle::certificates(&pushed.svids[0].x509_svid).unwrap();
        assert_eq!(&chain[1], node.files.site().certificate());
    }
    look_twice(&mut watch, &node).await;
    let more = tokio::time::timeout(Duration::from_millis(200), stream.message()).await;
    assert!(more.is_err(), "nothing has changed: {more:?}");
}

/// A pair of which one is replaced, and a root that is gone: what was loaded stays until they fit.
#[tokio::test]
async fn files_that_do_not_fit_wait_until_they_do() {
    let (node, mut watch) = (Node::new(vec![hour("/a")]).await, Watch::default());
    let (before, old) = (issuing(&node), fs::read_to_string(node.files.path("site-ca.key")).unwrap());
    node.files.new_site(NODE.0);
    let new = fs::read_to_string(node.files.path("site-ca.key")).unwrap();
    node.files.write("site-ca.key", &old, 0o600);
    let root = fs::read_to_string(node.files.path("root.pem")).unwrap();
    look_twice(&mut watch, &node).await;
    assert_eq!(issuing(&node), before, "half a pair");

    node.files.write("site-ca.key", &new, 0o600);
    fs::remove_file(node.files.path("root.pem")).unwrap();
    look_twice(&mut watch, &node).await;
    assert_eq!(issuing(&node), before, "nothing holds without the root");
    assert_eq!(node.handle.summary().0, Condition::Well);

    node.files.write("root.pem", &root, 0o644);
    look_twice(&mut watch, &node).await;
    assert_eq!(issuing(&node), node.files.site().facts().serial);
}

/// The node's own pair, and a root that is added: a reload that comes first leaves nothing to do.
#[tokio::test]
async fn each_file_of_the_node_is_looked_at() {
    let (node, mut watch) = (Node::new(vec![hour("/a")]).await, Watch::default());
    let chain = || node.handle.material().unwrap().own.unwrap().chain.clone();
    let before = chain();
    node.files.new_node(NODE.0, NODE.1);
    look_twice(&mut watch, &node).await;
    assert_ne!(chain(), before);

    let key = Key::generate(Curve::P384).unwrap();
    let more = Authority::root(&domain(), key, time::Duration::days(9), serial(), SystemTime::now().into());
    let both = bundle::to_pem([node.files.root.certificate(), more.unwrap().certificate()]);
    node.files.write("root.pem", &both, 0o644);
    look_twice(&mut watch, &node).await;
    assert_eq!(node.handle.trust().unwrap().own().anchors().len(), 2);
}
