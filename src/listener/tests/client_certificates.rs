//! Tests authentication by client certificates.

use rcgen::{SanType, SerialNumber};

use super::*;
use ray_relay_base::config::ClientAuth;
use ray_relay_base::dial::testing::Pair;

/// Returns the answer to a client with `pair`, or the alert of TLS.
async fn health_with_certificate(relay: &Relay, pair: Option<&Pair>) -> String {
    let client = Client {
        identity: pair,
        ..Client::default()
    };
    match relay.tls(&client).await {
        Err(error) => format!("alert: {error}"),
        Ok(mut stream) => {
            // In TLS 1.3 the client's handshake ends before the server has checked its certificate.
            let _ = stream.write_all(HEALTH).await;
            let mut all = Vec::new();
            let read = timeout(TEST_TIMEOUT, stream.read_to_end(&mut all)).await;
            match read.unwrap() {
                Err(error) => format!("alert: {error}"),
                Ok(_) => String::from_utf8(all).unwrap(),
            }
        }
    }
}

#[tokio::test]
async fn client_certificates_are_checked_by_ca_time_and_crl() {
    let clients = Authority::new("clients");
    let uri = [SanType::URI("spiffe://test/alice".try_into().unwrap())];
    let valid = clients.client("spiffe://test/alice");
    let other_authority = Authority::new("clients").client("spiffe://test/alice");
    let day = Duration::from_secs(86_400);
    let expired = clients.issue(&uri, |params| {
        params.not_after = (std::time::SystemTime::now() - day / 2).into();
    });
    let not_yet_valid = clients.issue(&uri, |params| {
        params.not_before = (std::time::SystemTime::now() + day / 2).into();
    });
    let revoked = clients.issue(&uri, |params| {
        params.serial_number = Some(SerialNumber::from(4711));
    });
    let unnamed = clients.issue(&[], |_| {});
    let ok = "HTTP/1.1 200 OK";
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let list = clients.crl(&[4711], 1);
        let relay = Relay::start(|files| config::Tls {
            client_crl_file: Some(files.write("crl.pem", &list)),
            ..files.mutual(&clients, client_auth)
        })
        .await;
        let without = match client_auth {
            ClientAuth::Optional => ok,
            _ => "alert: received fatal alert: CertificateRequired",
        };
        for (pair, expected) in [
            (Some(&valid), ok),
            (None, without),
            // A CA of the same name has another key.
            (
                Some(&other_authority),
                "alert: received fatal alert: DecryptError",
            ),
            (
                Some(&expired),
                "alert: received fatal alert: CertificateExpired",
            ),
            (
                Some(&not_yet_valid),
                "alert: received fatal alert: CertificateExpired",
            ),
            (
                Some(&revoked),
                "alert: received fatal alert: CertificateRevoked",
            ),
            (Some(&unnamed), "HTTP/1.1 403 Forbidden"),
        ] {
            let answer = health_with_certificate(&relay, pair).await;
            assert!(
                answer.starts_with(expected),
                "{answer} instead of {expected}"
            );
        }
        let client = Client {
            identity: Some(&unnamed),
            ..Client::default()
        };
        let (_, answer) = initialized(relay.tls(&client).await.unwrap()).await;
        assert_eq!(answer["success"], false);
        let sentence = answer["message"].as_str().unwrap();
        assert!(sentence.contains("subject alternative name"), "{sentence}");
    }
    // An expired list makes every certificate invalid.
    let list = clients.crl(&[], -1);
    let relay = Relay::start(|files| config::Tls {
        client_crl_file: Some(files.write("crl.pem", &list)),
        ..files.mutual(&clients, ClientAuth::Required)
    })
    .await;
    let answer = health_with_certificate(&relay, Some(&valid)).await;
    assert!(answer.starts_with("alert: "), "{answer}");
}
