//! PyCharm's older protocol.

use super::*;

#[tokio::test]
async fn an_ide_that_speaks_pydevd_is_told_what_to_do_in_a_line_and_no_table() {
    let relay = Relay::start(optional).await;
    let answer = said(&mut relay.plain().await, b"501\t1\t0.1\tUNIX\tID\n").await;
    assert!(answer.contains("Attach to DAP"), "{answer}");
    assert_eq!(answer.lines().count(), 1, "{answer}");
}

/// `pydevd_pycharm.settrace` waits for its IDE to speak, and for ever.
#[tokio::test(start_paused = true)]
async fn a_program_that_waits_for_its_ide_is_told_so_and_let_run() {
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
