//! PyCharm's older protocol.

use super::*;
use crate::config::TlsMode;

fn optional(files: &Files) -> config::Tls {
    config::Tls {
        mode: TlsMode::Optional,
        ..files.config()
    }
}

#[tokio::test]
async fn an_ide_that_speaks_pydevd_is_told_what_to_do_in_a_line_and_no_table() {
    let relay = Relay::start(optional).await;
    let answer = said(&mut relay.plain().await, b"501\t1\t0.1\tUNIX\tID\n").await;
    assert!(answer.contains("Attach to DAP"), "{answer}");
    assert_eq!(answer.lines().count(), 1, "{answer}");
}
