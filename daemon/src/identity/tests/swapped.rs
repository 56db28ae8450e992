//! Files as Kubernetes mounts them: links into a directory that is swapped whole.

use super::*;

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
