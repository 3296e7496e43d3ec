//! Agents that send invalid messages.

use super::*;

async fn expect_refused_link(messages: Vec<Message>, expected: &str) {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    for message in messages {
        // The relay may have closed the connection by then.
        let _ = agent.socket.send(message).await;
    }
    let reason = agent.refused().await;
    assert!(reason.contains(expected), "{reason}");
    assert!(scene.recorded().last().unwrap().starts_with("refused "));
    // The next agent is accepted.
    scene.linked("agent", "a1", 2).await;
}

#[tokio::test]
async fn invalid_message_ends_the_link() {
    for text in ["{", "[]", r#"{"type":"held","workers":[{}]}"#, "\"x\""] {
        expect_refused_link(vec![Message::text(text)], "an invalid link message").await;
    }
    expect_refused_link(vec![Message::binary(vec![0, 1, 2])], "not a text").await;
    let announcement_again = FromAgent::Announce(announcement(Some("a1"), &[]));
    let message = Message::text(tunnel::messages::written(&announcement_again));
    expect_refused_link(vec![message], "second announcement").await;
}

#[tokio::test]
async fn oversized_message_ends_the_link() {
    let large = format!(r#"{{"type":"later","x":"{}"}}"#, "y".repeat(300 << 10));
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let _ = agent.socket.send(Message::text(large)).await;
    agent.ends().await;
    let recorded = || scene.recorded().last().unwrap().clone();
    let ended = async {
        while !recorded().contains("256 KiB") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, ended).await.expect("in time");
}

#[tokio::test]
async fn flood_ends_its_own_link_only() {
    let scene = Scene::new().await;
    let mut other = scene.linked("local", "c3", 9).await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    for _ in 0..5000 {
        let message = Message::text(r#"{"type":"dance"}"#);
        if agent.socket.send(message).await.is_err() {
            break;
        }
    }
    agent.ends().await;
    let flooded = async {
        while !scene
            .recorded()
            .iter()
            .any(|line| line.contains("too many messages"))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, flooded).await.expect("in time");
    other.say(&FromAgent::Held { workers: vec![] }).await;
}

#[tokio::test]
async fn missing_announcement_or_other_version_is_refused() {
    let scene = Scene::new().await;
    let mut unannounced = scene.dial("agent").await.unwrap();
    unannounced.say(&FromAgent::Held { workers: vec![] }).await;
    assert!(
        unannounced
            .refused()
            .await
            .contains("before the announcement")
    );
    let mut newer = scene.dial("agent").await.unwrap();
    let announce = Announce {
        protocol: 2,
        nonce: newer.nonce,
        ..announcement(Some("a1"), &[])
    };
    newer.say(&FromAgent::Announce(announce)).await;
    assert!(newer.refused().await.contains("version 2"));
}
