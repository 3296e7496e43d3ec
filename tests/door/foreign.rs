//! Pages of other sites in real browsers: none reaches a request that acts, by any spelling of the relay's address.
//!
//! Loopback and an address that stands for a LAN are those of a network namespace, in which the test runs itself again.

use std::process::Command;

use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::browser::{Browser, chromium, firefox};
use super::origins::{Asked, cluster, head_with};
use super::support::*;

const FOREIGN_PAGE: &str = include_str!("foreign.html");
const OWN_PAGE: &str = include_str!("own.html");

/// Set inside the namespace.
const INSIDE_ENV: &str = "RAY_RELAY_FOREIGN_INSIDE";

/// The address of the LAN, and names that lead there.
const LAN_IP: &str = "10.77.0.7";
const DOMAIN: &str = "ray.example.com";

/// Runs the test `name` again in a namespace of its own; `false`: this is that run.
fn outside(name: &str) -> bool {
    if std::env::var_os(INSIDE_ENV).is_some() {
        return false;
    }
    let script = format!(
        "mount --bind \"$1\" /etc/hosts && ip link set lo up && ip addr add {LAN_IP}/32 dev lo && shift && exec \"$@\""
    );
    let hosts = tempfile::NamedTempFile::new().unwrap();
    let names = ["evil", "other"].map(|name| format!("{LAN_IP} {name}.{DOMAIN}\n"));
    let own = "127.0.0.1 localhost\n::1 localhost\n";
    std::fs::write(hosts.path(), format!("{own}{}", names.concat())).unwrap();
    let possible = Command::new("unshare")
        .args(["--net", "--mount", "ip", "link", "set", "lo", "up"])
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "no network namespace can be made"
        );
        eprintln!("SKIPPED: this needs root, unshare and ip (iproute2), for a network namespace");
        return true;
    }
    let ended = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-ec", &script, "sh"])
        .arg(hosts.path())
        .arg(std::env::current_exe().unwrap())
        .args([&*test(name), "--exact", "--nocapture"])
        .env(INSIDE_ENV, "1")
        .status();
    assert!(ended.unwrap().success(), "the run in the namespace failed");
    true
}

/// The test `name` of this file, as its binary calls it.
fn test(name: &str) -> String {
    let path = module_path!().split_once("::");
    format!("{}::{name}", path.map_or("", |(_, path)| path))
}

/// Returns the addresses of the relay at `port` for a browser on the same machine.
fn bases(port: u16) -> Vec<String> {
    let hosts = [
        "127.0.0.1",
        "localhost",
        "other.localhost",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:0:0]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "2130706433",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "127.0.0.2",
        LAN_IP,
        "[::ffff:10.77.0.7]",
        "other.ray.example.com",
    ];
    hosts.map(|host| format!("http://{host}:{port}")).to_vec()
}

/// Collects the requests to heads until the page of `last` has sent everything.
async fn collect_until(
    last: &str,
    received: &mut tokio::sync::mpsc::UnboundedReceiver<(&'static str, Asked)>,
) -> Vec<(&'static str, String)> {
    let deadline = Instant::now() + 12 * TEST_TIMEOUT;
    let mut all = Vec::new();
    loop {
        let next = timeout_at(deadline, received.recv()).await;
        let Ok(Some((of, (first, ..)))) = next else {
            panic!("{last} has not sent everything: {all:#?}");
        };
        let is_end = first.starts_with("POST /sent?") && first.contains(last);
        all.push((of, first));
        if is_end {
            return all;
        }
    }
}

async fn no_page_of_another_site_acts(name: &str, open: impl Fn(&str) -> Browser) {
    if outside(name) {
        return;
    }
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let mut heads = Vec::new();
    for of in ["site", "evil", "other"] {
        let (page, address, mut from_page) = head_with("[::]:0").await;
        let sender = sender.clone();
        tokio::spawn(async move {
            while let Some(one) = from_page.recv().await {
                let _ = sender.send((of, one));
            }
        });
        heads.push((page, address));
    }
    let local = |at: usize| ([127, 0, 0, 1], heads[at].1.port()).into();
    let relay = start(|config| {
        config.listen.address = "[::]:0".parse().unwrap();
        config.listen.insecure_no_auth = true;
        config.clusters = vec![cluster("other", local(2)), cluster("evil", local(1))];
        config.http.dashboard_hosts = Some(format!("{{cluster}}.{DOMAIN}"));
    })
    .await;
    let port = relay.local_addr().port();
    let site = heads[0].1.port();
    let own = [
        format!("http://other.localhost:{port}"),
        format!("http://other.{DOMAIN}:{port}"),
    ];
    let pages = [
        format!("http://127.0.0.1:{site}/"),
        format!("http://{LAN_IP}:{site}/"),
        format!("http://evil.localhost:{port}/"),
        format!("http://evil.{DOMAIN}:{port}/"),
        format!("{}/", own[0]),
    ];
    let foreign = FOREIGN_PAGE
        .replace("PAGES", &json!(pages).to_string())
        .replace("BASES", &json!(bases(port)).to_string());
    let next = json!({ &*own[0]: format!("{}/", own[1]) });
    for (at, text) in [
        (0, foreign.clone()),
        (1, foreign),
        (2, OWN_PAGE.replace("NEXT", &next.to_string())),
    ] {
        *heads[at].0.lock().unwrap() = text;
    }
    let _browser = open(&pages[0]);
    let end = format!("other.{DOMAIN}");
    let all = collect_until(&end, &mut received).await;
    let reached: Vec<_> = all
        .iter()
        .filter(|(_, first)| first.contains("foreign="))
        .collect();
    assert!(
        reached.is_empty(),
        "{} requests: {reached:#?}",
        reached.len()
    );
    for path in [
        "GET /api/actors/kill?own=fetch",
        "POST /api/jobs/?own=job",
        "GET /api/data/datasets/1?own=img",
    ] {
        let is_it = |(_, first): &&(_, String)| first.starts_with(path);
        assert_eq!(
            all.iter().filter(is_it).count(),
            own.len(),
            "{path}: {all:#?}"
        );
    }
    relay.abort().await;
}

#[tokio::test]
async fn no_page_of_another_site_acts_in_chromium() {
    let Some(program) = chromium() else {
        return;
    };
    let open = |url: &str| Browser::open(&program, url);
    no_page_of_another_site_acts("no_page_of_another_site_acts_in_chromium", open).await;
}

#[tokio::test]
async fn no_page_of_another_site_acts_in_firefox() {
    let Some(program) = firefox() else {
        return;
    };
    let open = |url: &str| Browser::open_firefox(&program, url);
    no_page_of_another_site_acts("no_page_of_another_site_acts_in_firefox", open).await;
}
