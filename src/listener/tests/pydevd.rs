//! PyCharm's older protocol.

use super::*;

#[tokio::test]
async fn pydevd_ide_gets_a_one_line_hint() {
    let relay = Relay::start(optional).await;
    let answer = said(&mut relay.plain().await, b"501\t1\t0.1\tUNIX\tID\n").await;
    assert!(answer.contains("Attach to DAP"), "{answer}");
    assert_eq!(answer.lines().count(), 1, "{answer}");
}

/// `pydevd_pycharm.settrace` waits for its IDE to speak, and for ever.
#[tokio::test(start_paused = true)]
async fn pydevd_program_is_notified_and_resumed() {
    let relay = Relay::changed(optional, |config| {
        config.listen.handshake_timeout = Duration::from_secs(3);
    })
    .await;
    let last_words = rest(&mut relay.plain().await).await;
    let last_words = String::from_utf8(last_words).unwrap();
    let (told, run_on) = last_words.trim_end().rsplit_once("\r\n").unwrap();
    assert!(told.contains("pydevd_pycharm.settrace"), "{told}");
    // As pydevd reads a line.
    let command: Vec<_> = run_on.splitn(3, '\t').collect();
    assert_eq!(command[..2], ["101", "0"], "{run_on}");
}
