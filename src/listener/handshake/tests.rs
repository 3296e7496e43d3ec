//! Tests the detection of a connection's protocol by its first bytes, also inside TLS.

use std::time::Duration;

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncWriteExt, duplex};
use tokio_rustls::TlsConnector;

use super::*;
use ray_relay_base::dial::testing::{Authority, Client, Files};

#[tokio::test(start_paused = true)]
async fn silent_client_times_out_unclassified() {
    for sent in [&b""[..], b"Content", b"CON"] {
        let (mut near, mut far) = duplex(64);
        far.write_all(sent).await.unwrap();
        let started = Instant::now();
        let first_bytes = read_first(&mut near, started + Duration::from_secs(60)).await;
        assert!(matches!(first_bytes, Ok(FirstBytes::Silent)));
        assert_eq!(started.elapsed(), Duration::from_secs(60));
    }
}

async fn known_protocol<S: AsyncRead + Unpin>(stream: &mut S, timeout: Duration) -> Option<First> {
    match read_first(stream, Instant::now() + timeout).await.unwrap() {
        FirstBytes::Known(first) => Some(first),
        FirstBytes::Closed => None,
        FirstBytes::Silent => panic!("silent"),
    }
}

#[tokio::test(start_paused = true)]
async fn slow_protocol_prefix_is_detected_without_loss() {
    let (mut near, mut far) = duplex(64);
    let writer = tokio::spawn(async move {
        for byte in b"Content-" {
            far.write_all(&[*byte]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        far
    });
    let first = known_protocol(&mut near, Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(first.detection, Detection::Dap);
    assert_eq!(&first.bytes[..], b"Content-");
    writer.await.unwrap();
}

#[tokio::test]
async fn refused_peer_gets_the_whole_answer_while_sending() {
    let (near, mut far) = duplex(64);
    let refusing = tokio::spawn(refusal::close(near, UNKNOWN_ANSWER));
    let mut answer = Vec::new();
    far.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, UNKNOWN_ANSWER);
    drop(far);
    refusing.await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn detection_is_the_same_inside_tls(
        start in prop_oneof![Just(""), Just("GET "), Just("Content-"), Just("PRI * HTTP/2.0"), Just("\u{16}\u{3}"), Just("PUT"), Just("CON")],
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        cuts in proptest::collection::vec(1usize..20, 1..8),
    ) {
        let sent = [start.as_bytes(), &bytes].concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let authority = Authority::new("test");
        let files = Files::new(&authority.server());
        let tls = Tls::new(&files.config()).unwrap();
        let (plain, inside_tls) = runtime.block_on(async {
            let (near, far) = duplex(1 << 14);
            let plain = detect(near, far, &sent, &cuts).await;
            let (near, far) = duplex(1 << 14);
            let connector = TlsConnector::from(Client::default().trusting(&authority.pem));
            let name = ServerName::try_from("localhost").unwrap();
            let acceptor = tls.acceptor().unwrap();
            let (near, far) = tokio::join!(acceptor.accept(near), connector.connect(name, far));
            (plain, detect(near.unwrap(), far.unwrap(), &sent, &cuts).await)
        });
        prop_assert_eq!(plain, inside_tls);
    }
}

/// Returns the detected protocol and all bytes of a peer that sends them in these pieces and closes.
async fn detect<N, F>(
    mut near: N,
    mut far: F,
    sent: &[u8],
    cuts: &[usize],
) -> Option<(Detection, Vec<u8>)>
where
    N: AsyncRead + AsyncWrite + Unpin,
    F: AsyncWrite + Unpin,
{
    let mut cuts = cuts.iter().cycle();
    let mut rest = sent;
    while !rest.is_empty() {
        let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
        far.write_all(now).await.unwrap();
        far.flush().await.unwrap();
        rest = later;
    }
    far.shutdown().await.unwrap();
    let first = known_protocol(&mut near, Duration::from_secs(20)).await?;
    let mut all = first.bytes.to_vec();
    near.read_to_end(&mut all).await.unwrap();
    Some((first.detection, all))
}
