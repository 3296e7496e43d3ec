//! Tests TLS files, their changes, and names in certificates. The listener's tests cover connections.
#![allow(clippy::unwrap_used)]

use rcgen::SanType;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::*;
use crate::telemetry::testing::Log;
use ray_relay_base::config::{ClientAuth, TlsVersion};
use ray_relay_base::dial::testing::{Authority, Client, Files as TestFiles, Pair, certificate};

fn faults(config: &config::Tls) -> Vec<Fault> {
    Material::load(config).err().unwrap_or_default()
}

/// Returns the only problem of `config`.
fn single_problem(config: &config::Tls) -> String {
    let faults = faults(config);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults[0].to_string()
}

#[test]
fn unusable_tls_files_are_each_reported_with_a_remedy() {
    let authority = Authority::new("test");
    let (pair, other) = (authority.server(), authority.server());
    let files = TestFiles::new(&pair);
    let valid = files.config();
    assert_eq!(faults(&valid), []);
    let problem_with = |key: &str, text: &str| {
        let path = files.write("other.pem", text);
        let mut config = valid.clone();
        match key {
            "cert" => config.cert_file = Some(path),
            _ => config.key_file = Some(path),
        }
        single_problem(&config)
    };
    let old_encrypted = pair.key.replace(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n",
    );
    let old_encrypted = old_encrypted.replace("END PRIVATE", "END EC PRIVATE");
    let encrypted = pair.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let two_keys = pair.key.clone() + &other.key;
    let broken = |label: &str| format!("-----BEGIN {label}-----\nMAA=\n-----END {label}-----\n");
    for (key, text, expected) in [
        ("cert", "", "is not PEM text"),
        ("cert", "hello", "is not PEM text"),
        ("cert", pair.key.as_str(), "are swapped"),
        ("cert", &broken("CERTIFICATE"), "not understood"),
        ("key", &pair.cert, "are swapped"),
        ("key", &encrypted, "openssl pkey"),
        ("key", &old_encrypted, "openssl pkey"),
        ("key", &two_keys, "more than one private key"),
        ("key", &other.key, "does not fit the first certificate"),
        ("key", &broken("PRIVATE KEY"), "not understood"),
    ] {
        let sentence = problem_with(key, text);
        assert!(sentence.contains(expected), "{sentence}");
        assert!(sentence.contains("other.pem"), "{sentence}");
    }
    // The certificates of the chain in the wrong order.
    let reversed = problem_with("cert", &(authority.pem + &pair.cert));
    assert!(
        reversed.contains("before the intermediate ones"),
        "{reversed}"
    );
    // All problems are reported at once.
    let missing = config::Tls {
        cert_file: Some("/nowhere/a.pem".into()),
        key_file: Some("/nowhere/b.pem".into()),
        client_auth: ClientAuth::Optional,
        client_ca_file: Some(files.path().to_owned()),
        client_crl_file: Some(files.write("crl", &pair.cert)),
        ..valid
    };
    let keys: Vec<_> = faults(&missing)
        .iter()
        .map(|single_problem| single_problem.key)
        .collect();
    let expected = "tls.cert_file tls.key_file tls.client_ca_file tls.client_crl_file";
    assert_eq!(keys.join(" "), expected);
}

#[test]
fn only_forward_secret_aead_suites_are_offered() {
    let authority = Authority::new("test");
    let files = TestFiles::new(&authority.server());
    let server = Material::load(&files.config()).unwrap().into_server();
    for suite in &server.crypto_provider().cipher_suites {
        let name = format!("{:?}", suite.suite());
        let has_secrecy = name.starts_with("TLS13_") || name.starts_with("TLS_ECDHE_");
        let authenticates = name.contains("GCM") || name.contains("POLY1305");
        assert!(has_secrecy && authenticates, "{name}");
    }
    assert_eq!(server.max_early_data_size, 0, "early data can be replayed");
}

/// A client and a server, connected with each other.
type Ends = (
    client::TlsStream<DuplexStream>,
    server::TlsStream<DuplexStream>,
);

async fn connect(tls: &Tls, authority: &str, client: &Client<'_>) -> std::io::Result<Ends> {
    connect_by(tls, client.trusting(authority)).await
}

async fn connect_by(tls: &Tls, client: Arc<rustls::ClientConfig>) -> std::io::Result<Ends> {
    connect_to(tls.acceptor().unwrap(), client).await
}

async fn connect_to(
    acceptor: TlsAcceptor,
    client: Arc<rustls::ClientConfig>,
) -> std::io::Result<Ends> {
    let (near, far) = duplex(1 << 14);
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(client);
    let (client, server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    Ok((client?, server?))
}

async fn exchange((client, server): &mut Ends) {
    client.write_all(b"ping").await.unwrap();
    client.flush().await.unwrap();
    let mut bytes = [0; 4];
    server.read_exact(&mut bytes).await.unwrap();
    server.write_all(&bytes).await.unwrap();
    server.flush().await.unwrap();
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"ping");
}

fn presented(ends: &Ends) -> Vec<u8> {
    ends.0.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn expired_or_early_certificate_is_logged() {
    let authority = Authority::new("test");
    let logged = |from: i32, end: i32| {
        let pair = authority.issue(&[SanType::DnsName("a.example".try_into().unwrap())], |p| {
            p.not_before = rcgen::date_time_ymd(from, 1, 2);
            p.not_after = rcgen::date_time_ymd(end, 1, 2);
        });
        let files = TestFiles::new(&pair);
        let log = Log::start();
        Tls::new(&files.config()).unwrap();
        log.text()
    };
    let expired = logged(2020, 2021);
    assert!(expired.contains("expired at") && expired.contains("clients will refuse it"));
    let before_reload = logged(4000, 4001);
    assert!(
        before_reload.contains("is valid from") && before_reload.contains("clients will refuse it")
    );
    let valid = logged(2020, 4000);
    assert!(!valid.contains("refuse"), "{valid}");
}

#[tokio::test]
async fn changed_pair_serves_new_sessions_unless_invalid() {
    let authority = Authority::new("test");
    let (old, new) = (authority.server(), authority.server());
    let files = TestFiles::new(&old);
    let tls = Tls::new(&files.config()).unwrap();
    let client = Client::default();
    let connect = || connect(&tls, &authority.pem, &client);
    let mut connected = connect().await.unwrap();
    assert_eq!(tls.reload_if_changed(), None, "nothing has changed");

    files.write("tls.crt", &new.cert);
    assert_eq!(
        tls.reload_if_changed(),
        None,
        "it may still be being written"
    );
    files.write("tls.key", &new.key);
    assert_eq!(
        tls.reload_if_changed(),
        None,
        "it changed since the last look"
    );
    let serves = async |pair: &Pair| {
        let ends = connect().await.unwrap();
        assert_eq!(presented(&ends), *certificate(&pair.cert));
    };
    serves(&old).await;
    assert_eq!(tls.reload_if_changed(), Some(Reload::Ok));
    serves(&new).await;
    exchange(&mut connected).await;
    assert_eq!(tls.reload_if_changed(), None);

    files.write("tls.key", &old.key);
    assert_eq!(
        (tls.reload_if_changed(), tls.reload_if_changed()),
        (None, Some(Reload::Refused))
    );
    assert_eq!(
        (tls.reload_if_changed(), tls.reload_if_changed()),
        (None, None),
        "told once"
    );
    exchange(&mut connect().await.unwrap()).await;
    exchange(&mut connected).await;

    std::fs::remove_file(files.path().join("tls.key")).unwrap();
    assert_eq!(
        (tls.reload_if_changed(), tls.reload_if_changed()),
        (None, Some(Reload::Refused))
    );
    serves(&new).await;
}

#[tokio::test]
async fn kubernetes_secret_symlinks_are_followed() {
    let authority = Authority::new("test");
    let (old, new) = (authority.server(), authority.server());
    let dir = tempfile::tempdir().unwrap();
    let path_of = |name: &str| dir.path().join(name);
    let write_pair = |folder: &str, pair: &Pair| {
        std::fs::create_dir(path_of(folder)).unwrap();
        std::fs::write(path_of(folder).join("tls.crt"), &pair.cert).unwrap();
        std::fs::write(path_of(folder).join("tls.key"), &pair.key).unwrap();
    };
    write_pair("..1", &old);
    std::os::unix::fs::symlink("..1", path_of("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{name}"), path_of(name)).unwrap();
    }
    let config = config::Tls {
        mode: TlsMode::Required,
        cert_file: Some(path_of("tls.crt")),
        key_file: Some(path_of("tls.key")),
        ..config::Tls::default()
    };
    let tls = Tls::new(&config).unwrap();
    write_pair("..2", &new);
    std::os::unix::fs::symlink("..2", path_of("..data_tmp")).unwrap();
    std::fs::rename(path_of("..data_tmp"), path_of("..data")).unwrap();
    std::fs::remove_dir_all(path_of("..1")).unwrap();
    assert_eq!(
        (tls.reload_if_changed(), tls.reload_if_changed()),
        (None, Some(Reload::Ok))
    );
    let client = Client::default();
    let ends = connect(&tls, &authority.pem, &client).await.unwrap();
    assert_eq!(presented(&ends), *certificate(&new.cert));
}

#[tokio::test]
async fn minimum_tls_version_is_as_configured() {
    let authority = Authority::new("test");
    let files = TestFiles::new(&authority.server());
    let old = Client {
        version: Some(&rustls::version::TLS12),
        ..Client::default()
    };
    let two_keys = Tls::new(&files.config()).unwrap();
    assert!(connect(&two_keys, &authority.pem, &old).await.is_ok());
    let new = config::Tls {
        min_version: TlsVersion::V1_3,
        ..files.config()
    };
    let new = Tls::new(&new).unwrap();
    assert!(connect(&new, &authority.pem, &old).await.is_err());
    let newest = Client::default();
    assert!(connect(&new, &authority.pem, &newest).await.is_ok());
}

#[tokio::test]
async fn tls_tickets_end_when_the_files_change() {
    let authority = Authority::new("test");
    let files = TestFiles::new(&authority.server());
    let tls = Tls::new(&files.mutual(&authority, ClientAuth::Required)).unwrap();
    let pair = authority.client("spiffe://test/alice");
    let client = Client {
        identity: Some(&pair),
        ..Client::default()
    };
    let config = client.trusting(&authority.pem);
    let connect_once = async || {
        let mut ends = connect_by(&tls, config.clone()).await.unwrap();
        exchange(&mut ends).await;
        assert!(ends.1.get_ref().1.peer_certificates().is_some());
        ends.1.get_ref().1.handshake_kind().unwrap()
    };
    assert_eq!(connect_once().await, rustls::HandshakeKind::Full);
    assert_eq!(connect_once().await, rustls::HandshakeKind::Resumed);
    files.write("ca.crt", &(authority.pem.clone() + "\n"));
    assert_eq!(
        (tls.reload_if_changed(), tls.reload_if_changed()),
        (None, Some(Reload::Ok))
    );
    assert_eq!(connect_once().await, rustls::HandshakeKind::Full);
}

#[test]
fn subject_is_the_first_uri_mail_or_dns_name() {
    let authority = Authority::new("test");
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let mail = |text: &str| SanType::Rfc822Name(text.try_into().unwrap());
    let dns = |text: &str| SanType::DnsName(text.try_into().unwrap());
    let subject = |names: &[SanType]| {
        let pair = authority.issue(names, |_| {});
        Certificate::read(&certificate(&pair.cert)).map(|read| read.subject)
    };
    let all = [
        dns("a.example"),
        mail("a@example"),
        uri("spiffe://x/a"),
        uri("spiffe://x/b"),
    ];
    assert_eq!(subject(&all).as_deref(), Ok("spiffe://x/a"));
    assert_eq!(subject(&all[..2]).as_deref(), Ok("a@example"));
    assert_eq!(subject(&all[..1]).as_deref(), Ok("a.example"));
    for anonymous in [
        &[][..],
        &[SanType::IpAddress([10, 0, 0, 1].into())],
        &[uri("spiffe://x/a b"), mail("a@example")],
        &[uri(""), mail("a@example")],
        &[uri("spiffe://x/\nadmin")],
        &[uri(&"x".repeat(513))],
    ] {
        assert_eq!(subject(anonymous), Err(NobodyNamed), "{anonymous:?}");
    }
    assert_eq!(Certificate::read(b"\x30\x00"), Err(NobodyNamed));
}

#[test]
fn fingerprint_and_expiry_match_the_certificate() {
    let authority = Authority::new("test");
    let pair = authority.issue(&[SanType::URI("x:a".try_into().unwrap())], |params| {
        params.not_after = rcgen::date_time_ymd(2040, 1, 2);
    });
    let der = certificate(&pair.cert);
    let read = Certificate::read(&der).unwrap();
    let seconds = read.expires.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(seconds.as_secs(), 2_209_075_200);
    assert_eq!(read.fingerprint.len(), 64);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &der);
    let first = format!("{:02x}", digest.as_ref()[0]);
    assert!(read.fingerprint.starts_with(&first));
}

#[tokio::test]
async fn pin_trusts_one_key_whatever_the_certificate() {
    let authority = Authority::new("one");
    let (pair, another) = (authority.server(), authority.server());
    let connect = async |cert: &Pair, key: &Pair| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let signing_key = PrivateKeyDer::from_pem_slice(key.key.as_bytes()).unwrap();
        // The key is not checked against the certificate: a server can present another server's certificate.
        let signing_key = provider.key_provider.load_private_key(signing_key).unwrap();
        let certified = CertifiedKey::new(vec![certificate(&cert.cert)], signing_key);
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        let pin = Pin::of(&certificate(&pair.cert)).unwrap().to_string();
        let client = pin.parse::<Pin>().unwrap().trusting().unwrap();
        let client = client.with_no_client_auth();
        connect_to(TlsAcceptor::from(Arc::new(server)), Arc::new(client)).await
    };
    exchange(&mut connect(&pair, &pair).await.unwrap()).await;
    let refused = connect(&another, &another).await.unwrap_err().to_string();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    // The pinned certificate, presented by a server without its key.
    let refused = connect(&pair, &another).await.unwrap_err().to_string();
    assert!(refused.contains("BadSignature"), "{refused}");
}
