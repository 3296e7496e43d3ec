//! Tests TLS towards relays.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::accept_async;

use super::super::RelayAccess;
use super::super::connect::{Dialler, Relay, RelayDialError};
use ray_relay_base::dial::http::{Roots, trusting};
use ray_relay_base::dial::testing::{Authority, Pair};
use ray_relay_base::dial::{DialRoute, Proxies};
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_base::wire::tunnel::link_config;

struct Trusting(ClientConfig);

impl RelayAccess for Trusting {
    fn tls(&self, _: &RelayUrl) -> Result<ClientConfig, String> {
        Ok(self.0.clone())
    }

    fn authorization(&self, _: &RelayUrl) -> Result<Option<HeaderValue>, String> {
        Ok(None)
    }
}

fn roots(authority: &Authority) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    roots.add(certificate).unwrap();
    let builder = trusting(Roots::Given(roots)).unwrap();
    builder.with_no_client_auth()
}

/// Links an agent with the trust of `config` to a relay with the certificate of `pair`, and returns the result.
async fn linked(pair: &Pair, host: &str, config: ClientConfig) -> Result<(), RelayDialError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let accepted = TlsAcceptor::from(Arc::new(server)).accept(stream).await;
        if let Ok(stream) = accepted {
            drop(accept_async(stream).await);
        }
    });
    let relay = Relay {
        url: format!("https://{host}:{}", address.port())
            .parse()
            .unwrap(),
        route: DialRoute::Direct(address),
        proxies: Proxies::none(),
        access: Arc::new(Trusting(config)),
    };
    let dialler = Dialler::new(relay).await?;
    let opened = dialler.open("/x", "x", HeaderMap::new(), link_config());
    let opened = opened.await.map(drop);
    serving.await.unwrap();
    opened
}

#[tokio::test]
async fn relay_is_trusted_by_its_ca_and_its_name() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let pair = authority.server();
    // The server that answers is no relay for agents, which shows only after the TLS handshake.
    let trusted = linked(&pair, "localhost", roots(&authority)).await;
    assert!(
        matches!(trusted, Err(RelayDialError::Strange(_))),
        "{trusted:?}"
    );
    for (host, roots) in [
        ("localhost", roots(&other)),
        ("relay.example", roots(&authority)),
    ] {
        let refused = linked(&pair, host, roots).await.unwrap_err();
        assert!(matches!(refused, RelayDialError::Untrusted(_)), "{refused}");
        assert!(refused.to_string().contains("--ca-file"), "{refused}");
    }
}
