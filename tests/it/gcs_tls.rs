//! A real Ray that speaks TLS on gRPC (`RAY_USE_TLS=1`): breakpoints of its legacy debugger are listed by the client certificate
//! of the configuration, and by nothing else.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ray_relay_access::telemetry::progress::PreparationClock;
use ray_relay_cluster::processes::adopt_orphans;
use ray_relay_cluster::{LocalCluster, Plan};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::eventually;
use crate::support::ray::{self, NEWEST};
use crate::support::relay::Relay;
use crate::support::turn::Turn;

/// An authority, and one certificate of it for all nodes of this machine, as Ray's documentation has one for each.
fn certify(dir: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "the authority of a Ray cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(dir.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().unwrap())];
    let addresses =
        (1..=4).map(|last| SanType::IpAddress(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))));
    params.subject_alt_names.extend(addresses);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    std::fs::write(dir.join("tls.crt"), certificate.pem()).unwrap();
    std::fs::write(dir.join("tls.key"), key.serialize_pem()).unwrap();
}

fn serve(cluster: &LocalCluster, dir: &Path, more: &str) -> Relay {
    let config = format!(
        "[[cluster]]\nname = \"default\"\nray_address = \"{}\"\ntoken_file = \"{}\"\ngcs_address = \"{}\"\n{more}",
        cluster.dashboard(),
        cluster.token_file().unwrap().display(),
        cluster.gcs(),
    );
    let file = dir.join("relay.toml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]);
    command.arg(file);
    Relay::start(command)
}

fn ray_relay(relay: &Relay, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    command.env_clear().env("RAY_RELAY_URL", relay.url());
    let output = command.args(words).output().unwrap();
    String::from_utf8([&*output.stdout, &output.stderr].concat()).unwrap()
}

/// Returns the number of listed breakpoints of the legacy debugger.
fn legacy(relay: &Relay) -> usize {
    let list: Value = ray_relay(relay, &["list", "--json"])
        .parse()
        .unwrap_or_default();
    let rows = list["breakpoints"].as_array();
    let rows = rows.into_iter().flatten();
    rows.filter(|row| row["kind"] == "pdb").count()
}

#[tokio::test]
async fn legacy_breakpoints_of_a_ray_with_tls_are_listed_by_its_certificate_and_released() {
    let Some(venv) = ray::environment(NEWEST) else {
        return;
    };
    let _turn = Turn::take();
    adopt_orphans();
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (ca, cert, key) = (file("ca.crt"), file("tls.crt"), file("tls.key"));
    let env = [
        ("RAY_USE_TLS", "1"),
        ("RAY_TLS_SERVER_CERT", &*cert),
        ("RAY_TLS_SERVER_KEY", &*key),
        ("RAY_TLS_CA_CERT", &*ca),
    ];
    let plan = Plan {
        venv: &venv,
        ray: NEWEST,
        workers: 1,
        env: &env,
    };
    let progress = PreparationClock::new("it: gcs_tls");
    let mut cluster = LocalCluster::start(plan, &progress).await.unwrap();
    let mut driver = cluster
        .command(venv.python())
        .arg(ray::job("legacy.py"))
        .env("WORKERS", "1")
        .env("RAY_DEBUG", "legacy")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    cluster.own(driver.id());
    let files =
        format!("gcs_ca_file = \"{ca}\"\ngcs_cert_file = \"{cert}\"\ngcs_key_file = \"{key}\"\n");
    let relay = serve(&cluster, dir.path(), &files);
    eventually(
        "two legacy breakpoints behind TLS",
        Duration::from_secs(120),
        || (legacy(&relay) == 2).then_some(()),
    );

    // Without them the error names what is missing.
    let blind = serve(&cluster, dir.path(), "");
    let message = ray_relay(&blind, &["doctor"]);
    assert!(
        message.contains("legacy debugger are not listed") && message.contains("gcs_ca_file"),
        "{message}"
    );
    assert_eq!(legacy(&blind), 0);

    let released = ray_relay(&relay, &["release", "--all", "--yes"]);
    let over = eventually("the driver's end", Duration::from_secs(60), || {
        driver.try_wait().unwrap()
    });
    assert!(over.success(), "{released}");
    drop((relay, blind));
    assert_eq!(cluster.stop(&CancellationToken::new()), Vec::<i32>::new());
}
