//! TLS of the relay's own process: what a scanner finds, renewal, and the commands around it.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::conversation::Conversation;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::relay::Relay;
use crate::support::{eventually, skip};

fn ray_relay(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    command.args(args).env_clear().output().unwrap()
}

/// `ray-relay config self-signed` to `dir`.
fn certify(dir: &Path, more: &[&str]) -> Output {
    let args = [
        &["config", "self-signed", "--out", dir.to_str().unwrap()],
        more,
    ]
    .concat();
    ray_relay(&args)
}

/// A relay with the certificate in `dir`.
fn serve(dir: &Path) -> Relay {
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    Relay::alone(&["--tls-cert", cert, "--tls-key", key])
}

fn certificate(dir: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap()
}

/// Connects to a relay whose certificate is now `trusted`.
async fn connect(
    to: SocketAddr,
    trusted: CertificateDer<'static>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(to).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

#[test]
fn sslscan_finds_nothing_weak() {
    if Command::new("sslscan").arg("--version").output().is_err() {
        return skip("sslscan is not installed (Debian package sslscan)");
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(certify(dir.path(), &[]).status.success());
    let relay = serve(dir.path());
    let scan = Command::new("sslscan")
        .args([
            "--no-colour",
            "--show-certificate",
            &relay.address().to_string(),
        ])
        .output()
        .unwrap();
    let text = String::from_utf8(scan.stdout).unwrap();
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for version in ["SSLv2", "SSLv3", "TLSv1.0", "TLSv1.1"] {
        assert!(
            words.contains(&vec![version, "disabled"]),
            "{version}: {text}"
        );
    }
    for version in ["TLSv1.2", "TLSv1.3"] {
        assert!(
            words.contains(&vec![version, "enabled"]),
            "{version}: {text}"
        );
    }
    let suites: Vec<&str> = words
        .iter()
        .filter(|line| matches!(line.first(), Some(&("Preferred" | "Accepted"))))
        .map(|line| line[4])
        .collect();
    assert!(suites.len() >= 6, "{text}");
    for suite in suites {
        let forward = suite.starts_with("TLS_") || suite.starts_with("ECDHE-");
        let authenticated = suite.contains("GCM") || suite.contains("CHACHA20");
        assert!(forward && authenticated, "{suite}: {text}");
    }
    for line in text.lines().filter(|line| line.contains("vulnerable")) {
        assert!(line.contains("not vulnerable"), "{line}");
    }
    assert!(!text.to_lowercase().contains("insecure"), "{text}");
    assert!(
        text.contains("Signature Algorithm: ecdsa-with-SHA256"),
        "{text}"
    );
}

#[tokio::test]
async fn renewed_certificate_is_used_and_sessions_continue() {
    let dir = tempfile::tempdir().unwrap();
    assert!(certify(dir.path(), &[]).status.success());
    let relay = serve(dir.path());
    let old = certificate(dir.path());
    let stream = connect(relay.address(), old.clone()).await.unwrap();
    let mut live = Conversation::new(stream, 1 << 20);
    let ask = json!({"seq": 1, "type": "request", "command": "initialize", "arguments": {}});
    live.send(&ask).await.unwrap();
    assert_eq!(live.read().await.unwrap()["success"], true);

    assert!(certify(dir.path(), &["--force"]).status.success());
    let new = certificate(dir.path());
    assert_ne!(old, new);
    let mut acquired = false;
    for _ in 0..100 {
        acquired = connect(relay.address(), new.clone()).await.is_ok();
        if acquired {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(acquired, "{}", relay.log());
    assert!(connect(relay.address(), old).await.is_err());
    // The earlier session is still answered (`launch` is refused).
    let ask = json!({"seq": 2, "type": "request", "command": "launch", "arguments": {}});
    let (mut stream, _) = live.into_parts();
    stream.write_all(&frame(&ask)).await.unwrap();
    stream.flush().await.unwrap();
    let mut live = Conversation::new(stream, 1 << 20);
    assert_eq!(live.read().await.unwrap()["request_seq"], 2);

    std::fs::write(dir.path().join("key.pem"), "nonsense").unwrap();
    eventually("a refusal in the log", Duration::from_secs(60), || {
        relay.log().contains("those from before stay").then_some(())
    });
    assert!(connect(relay.address(), new).await.is_ok());
    let metrics = ray_relay(&["list", "--relay", &relay.url()]);
    let stderr = String::from_utf8_lossy(&metrics.stderr).into_owned();
    assert!(stderr.contains("use https://"), "{stderr}");
}

#[test]
fn a_self_signed_certificate_is_made_once_and_trusted_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("new/tls");
    let made = certify(&at, &["--host", "relay.example.com", "--days", "30"]);
    let stdout = String::from_utf8(made.stdout).unwrap();
    for words in ["relay.example.com", "30 days", "--tls-cert", "--ca-file"] {
        assert!(stdout.contains(words), "{stdout}");
    }
    let mode = |name: &str| at.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("key.pem"), 0o600);
    let before = std::fs::read(at.join("key.pem")).unwrap();
    let again = certify(&at, &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
    assert_eq!(std::fs::read(at.join("key.pem")).unwrap(), before);
    let mut stale = std::fs::metadata(at.join("key.pem")).unwrap().permissions();
    stale.set_mode(0o644);
    std::fs::set_permissions(at.join("key.pem"), stale).unwrap();
    assert!(certify(&at, &["--force"]).status.success());
    assert_eq!(mode("key.pem"), 0o600);
    assert_ne!(std::fs::read(at.join("key.pem")).unwrap(), before);
    assert_eq!(
        std::fs::read_dir(&at).unwrap().count(),
        2,
        "nothing else is left"
    );
    assert_eq!(
        certify(&at, &["--host", "https://x"]).status.code(),
        Some(2)
    );

    let relay = serve(&at);
    let url = format!("https://localhost:{}", relay.address().port());
    let ca = at.join("cert.pem");
    let trusting = ray_relay(&["list", "--relay", &url, "--ca-file", ca.to_str().unwrap()]);
    assert!(trusting.status.success(), "{trusting:?}");
    for command in [&["list"][..], &["exec", "x"]] {
        let commands: &[&str] = if command[0] == "exec" {
            &["--", "w"]
        } else {
            &[]
        };
        let wary = ray_relay(&[command, &["--relay", &url], commands].concat());
        assert_eq!(wary.status.code(), Some(1));
        assert!(
            String::from_utf8_lossy(&wary.stderr).contains("--ca-file"),
            "{wary:?}"
        );
    }
}

#[test]
fn config_check_and_serve_report_unusable_files() {
    let dir = tempfile::tempdir().unwrap();
    assert!(certify(dir.path(), &[]).status.success());
    let cert = dir.path().join("cert.pem");
    let cert = cert.to_str().unwrap();
    for command in [&["config", "check"][..], &["serve"]] {
        let output = ray_relay(&[command, &["--tls-cert", cert, "--tls-key", cert]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{stderr}");
        assert!(
            stderr.contains("tls.key_file") && stderr.contains("swapped"),
            "{stderr}"
        );
    }
    let key = dir.path().join("key.pem");
    let args = [
        "config",
        "check",
        "--tls-cert",
        cert,
        "--tls-key",
        key.to_str().unwrap(),
    ];
    let output = ray_relay(&args);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains("mode = \"required\""), "{stdout}");
    assert!(!stdout.contains("BEGIN"), "{stdout}");
}

/// A certificate for the user `uri`, its key, and the certificate of its authority.
fn client_certificate(uri: &str) -> (String, String, String) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = ca.self_signed(&ca_key).unwrap().pem();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.subject_alt_names = vec![rcgen::SanType::URI(uri.try_into().unwrap())];
    let issued = params.signed_by(&key, &rcgen::Issuer::new(ca, ca_key));
    (issued.unwrap().pem(), key.serialize_pem(), authority)
}

#[test]
fn a_command_shows_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    assert!(certify(dir.path(), &[]).status.success());
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (cert, key, authority) = client_certificate("spiffe://example.com/ada");
    let (stranger, ..) = client_certificate("spiffe://example.com/ada");
    let policy = write(
        "policy.toml",
        "[[rule]]\nsubjects = [\"spiffe://example.com/ada\"]\nscopes = [\"list\"]\n",
    );
    let ca = write("ca.pem", &authority);
    let config = format!(
        "[tls]\ncert_file = {:?}\nkey_file = {:?}\nclient_ca_file = {ca:?}\n[auth]\npolicy_file = {policy:?}\n",
        dir.path().join("cert.pem"),
        dir.path().join("key.pem"),
    );
    let relay = Relay::alone(&["--config", &write("relay.toml", &config)]);
    let url = format!("https://localhost:{}", relay.address().port());
    let server = dir.path().join("cert.pem");
    let ask = |more: &[&str]| {
        let args = [
            "list",
            "--relay",
            &url,
            "--ca-file",
            server.to_str().unwrap(),
        ];
        let output = ray_relay(&[&args, more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    };
    let (cert, key) = (write("ada.pem", &cert), write("ada.key", &key));
    let (code, printed) = ask(&["--client-cert", &cert, "--client-key", &key]);
    assert_eq!(code, Some(0), "{printed}");
    let both = [&cert, &key].map(|path| std::fs::read_to_string(path).unwrap());
    let both = write("both.pem", &both.concat());
    let (code, printed) = ask(&["--client-cert", &both]);
    assert_eq!(code, Some(0), "{printed}");

    let (code, printed) = ask(&[]);
    assert!(
        code == Some(77) && printed.contains("--client-cert"),
        "{printed}"
    );
    let (code, printed) = ask(&["--client-cert", &cert]);
    assert!(
        code == Some(1) && printed.contains("--client-key"),
        "{printed}"
    );
    let stranger = write("stranger.pem", &stranger);
    let (code, printed) = ask(&["--client-cert", &stranger, "--client-key", &key]);
    assert!(
        code == Some(1) && printed.contains("no key of that"),
        "{printed}"
    );
    let (code, printed) = ask(&["--client-cert", &cert, "--client-key", "/nowhere"]);
    assert!(
        code == Some(1) && printed.contains("/nowhere cannot be read"),
        "{printed}"
    );
    let (code, printed) = ask(&["--client-key", &key]);
    assert!(
        code == Some(2) && printed.contains("--client-cert"),
        "{printed}"
    );
    assert!(!relay.log().contains("PRIVATE"));
}
