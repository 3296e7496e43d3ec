//! The page at `/relay/` in a real browser, from the client's namespace: Chromium, led by `tests/cluster/page.py`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::issuer::Issuer;
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::relay::Relay;
use crate::support::{say, skip};

/// The browser, by the names that distributions give it.
fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    let found = found.find(|program| program.is_file());
    if found.is_none() {
        skip("there is no chromium; apt install chromium");
    }
    found
}

/// A Python with what leads the browser, made below `target/` if need be.
fn python() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../page-venv");
    let python = venv.join("bin/python");
    let works = |python: &Path| {
        let imports = ["-c", "import playwright, axe_playwright_python"];
        let output = Command::new(python).args(imports).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !works(&python) {
        say("installing what leads a browser, from PyPI ...");
        let requirements = tool("page-requirements.txt");
        let made = Command::new("python3")
            .args(["-m", "venv"])
            .arg(&venv)
            .output();
        let made = made.is_ok_and(|output| output.status.success());
        let install = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
        ];
        let installed = Command::new(&python)
            .args(install)
            .arg(requirements)
            .output();
        if !made || !works(&python) {
            skip(format_args!("playwright is not to be had: {installed:?}"));
            return None;
        }
    }
    Some(python)
}

/// A script of `tests/cluster`.
pub(crate) fn tool(name: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster");
    tools.join(name)
}

/// Runs the script `name` in a browser at `address`, in the client's namespace.
pub(crate) fn browsed(cluster: &Cluster, name: &str, address: &str) {
    let (Some(chromium), Some(python)) = (chromium(), python()) else {
        return;
    };
    let mut browser = cluster.exec("client", &python);
    let browser = browser.arg(tool(name)).arg(chromium).arg(address);
    let output = browser.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
}

#[test]
fn browser_lists_paused_tasks_and_changes_a_result() {
    let (Some(chromium), Some(python)) = (chromium(), python()) else {
        return;
    };
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return;
    };
    let issuer = Issuer::new();
    let tokens = json!({
        "ann": issuer.mint("ann", &["--scope", "list,debug,terminal"]),
        "vera": issuer.mint("vera", &["--scope", "list,view"]),
        "root": issuer.mint("root", &["--scope", "list,admin"]),
        "lena": issuer.mint("lena", &["--scope", "list"]),
    });
    let audit = issuer.path("audit.jsonl");
    let text = format!(
        "[auth]\nkeys = [{:?}]\n[park]\nfor = \"5m\"\n[audit]\nsink = \"file\"\nfile = {audit:?}\n",
        issuer.path("relay.pub")
    );
    let config = issuer.write("relay.toml", &text);
    let relay = Relay::guarded(&cluster, &["--config", &config]);
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&shots).unwrap();
    let mut browser = cluster
        .exec("client", &python)
        .arg(tool("page.py"))
        .arg(chromium)
        .arg(relay.url() + "/relay/")
        .arg(&shots)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut steps = browser.stdin.take().unwrap();
    writeln!(steps, "{tokens}").unwrap();
    let mut driver = None;
    let mut stdout = BufReader::new(browser.stdout.take().unwrap()).lines();
    while let Some(Ok(step)) = stdout.next() {
        say(format_args!("the page: {step}"));
        match &*step {
            "start" => driver = Some(cluster.start_driver("tasks.py", &[])),
            "cut" => cluster.cut("head"),
            "mend" => cluster.mend("head"),
            "done" => {}
            other => panic!("{other}"),
        }
        writeln!(steps, "{step}").unwrap();
    }
    let status = browser.wait().unwrap();
    assert!(status.success(), "the browser's part failed: {status}");
    let results = driver.unwrap().result();
    let mut results: Vec<i64> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[1].as_i64().unwrap())
        .collect();
    results.sort_unstable();
    assert_eq!(results[0], -7, "{results:?}");
    assert!(results[1] > 0 && results[2] > 0, "{results:?}");

    let log = relay.log();
    let audit = std::fs::read_to_string(&audit).unwrap();
    for token in tokens.as_object().unwrap().values() {
        let token = token.as_str().unwrap();
        assert!(!log.contains(token) && !audit.contains(token));
    }
    let denied: Vec<_> = audit
        .lines()
        .filter(|line| line.contains("denied"))
        .collect();
    assert!(
        denied
            .iter()
            .any(|line| line.contains("/relay/v1/terminal")),
        "{denied:?}"
    );
    assert!(
        denied
            .iter()
            .any(|line| line.contains("/relay/v1/snapshot")),
        "{denied:?}"
    );
}
