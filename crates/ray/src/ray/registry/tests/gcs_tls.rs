//! Tests a GCS with mutual TLS, which Ray uses with `RAY_USE_TLS=1`.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::ray::head::HeadClient;
use crate::ray::registry::gcs::{GcsClient, GivenTls, TlsPems};
use crate::ray::registry::tests::fake_head::{FakeHead, cluster, live, settings};
use crate::ray::registry::tests::legacy::{FakeGcs, entry};
use crate::ray::registry::{Kind, Registry};
use ray_relay_base::config::{self, Gcs};
use ray_relay_base::dial::testing::{Authority, Files, Pair, certificate};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts only clients with certificates of `authority`.
fn mutual_tls(authority: &Authority) -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.pem)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let server_pair = authority.server();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(
            vec![certificate(&server_pair.cert)],
            PrivateKeyDer::from_pem_slice(server_pair.key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn pems(authority: &Authority, Pair { cert, key }: Pair) -> TlsPems {
    let bytes = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
    TlsPems {
        ca: bytes(&authority.pem),
        cert: bytes(&cert),
        key: bytes(&key),
    }
}

#[tokio::test]
async fn legacy_breakpoints_are_listed_over_mutual_tls() {
    let authority = Authority::new("ray");
    let (gcs, address) = FakeGcs::start_with(Some(mutual_tls(&authority))).await;
    gcs.put("RAY_PDB_01", entry(40_001, "waits"));
    let files = Files::new(&authority.server());
    let head = FakeHead::start().await;
    let watched = config::Cluster {
        gcs_address: Gcs::At(address.to_string()),
        gcs_ca_file: Some(files.write("ca.crt", &authority.pem)),
        gcs_cert_file: Some(files.path().join("tls.crt")),
        gcs_key_file: Some(files.path().join("tls.key")),
        ..cluster(&format!("http://{}", head.address))
    };
    let registry = Registry::new(&[watched], &settings()).unwrap();
    let shutdown = CancellationToken::new();
    let (running, token) = (registry.clone(), shutdown.clone());
    tokio::spawn(async move { running.run(token).await });
    let legacy = live(&registry, |b| b.kind == Kind::Pdb).await;
    assert_eq!(legacy.name(), "waits");
    shutdown.cancel();
}

#[tokio::test]
async fn certificates_are_fetched_again_after_a_failure() {
    let (authority, other) = (Authority::new("ray"), Authority::new("other"));
    let (gcs, address) = FakeGcs::start_with(Some(mutual_tls(&authority))).await;
    gcs.put("RAY_PDB_01", entry(40_001, "waits"));
    let head = FakeHead::start().await;
    let watched = config::Cluster {
        gcs_address: Gcs::At(address.to_string()),
        ..cluster(&format!("http://{}", head.address))
    };
    let head = HeadClient::new(&watched, TEST_TIMEOUT, false).unwrap();
    let tls_source = GivenTls::new();
    let client =
        GcsClient::of_found(&watched, Some(tls_source.clone()), &head, TEST_TIMEOUT).unwrap();
    // The GCS refuses a certificate of another authority.
    tls_source.give(pems(&authority, other.server()));
    let error = client.breakpoints().await.unwrap_err().to_string();
    assert!(error.contains("gcs_ca_file"), "{error}");
    timeout(TEST_TIMEOUT, tls_source.failed()).await.unwrap();
    tls_source.give(pems(&authority, authority.server()));
    let entries = timeout(TEST_TIMEOUT, async {
        loop {
            if let Ok(entries) = client.breakpoints().await {
                break entries;
            }
        }
    });
    assert_eq!(entries.await.unwrap().len(), 1);
    assert!(!format!("{tls_source:?} {client:?}").contains("PRIVATE"));
}

#[tokio::test]
async fn gcs_of_another_ca_receives_no_request() {
    let (authority, other) = (Authority::new("ray"), Authority::new("other"));
    let (_gcs, address) = FakeGcs::start_with(Some(mutual_tls(&other))).await;
    let head = FakeHead::start().await;
    let watched = config::Cluster {
        gcs_address: Gcs::At(address.to_string()),
        ..cluster(&format!("http://{}", head.address))
    };
    let head = HeadClient::new(&watched, TEST_TIMEOUT, false).unwrap();
    let tls_source = GivenTls::new();
    tls_source.give(pems(&authority, other.server()));
    let client = GcsClient::of_found(&watched, Some(tls_source), &head, TEST_TIMEOUT).unwrap();
    let error = client.breakpoints().await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}
