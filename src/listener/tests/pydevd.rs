//! Tests PyCharm's older protocol.

use super::*;

#[tokio::test]
async fn pydevd_ide_gets_a_one_line_hint() {
    let relay = Relay::start(optional).await;
    let answer = exchange(&mut relay.plain().await, b"501\t1\t0.1\tUNIX\tID\n").await;
    assert!(answer.contains("Attach to DAP"), "{answer}");
    assert_eq!(answer.lines().count(), 1, "{answer}");
}

/// `pydevd_pycharm.settrace` waits without a timeout for the first message of the IDE.
#[tokio::test(start_paused = true)]
async fn pydevd_program_is_notified_and_resumed() {
    let relay = Relay::changed(optional, |config| {
        config.listen.handshake_timeout = Duration::from_secs(3);
    })
    .await;
    let message = rest(&mut relay.plain().await).await;
    let message = String::from_utf8(message).unwrap();
    let (hint, resume_command) = message.trim_end().rsplit_once("\r\n").unwrap();
    assert!(hint.contains("pydevd_pycharm.settrace"), "{hint}");
    // pydevd splits a line in the same way.
    let command: Vec<_> = resume_command.splitn(3, '\t').collect();
    assert_eq!(command[..2], ["101", "0"], "{resume_command}");
}
