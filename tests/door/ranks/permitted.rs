//! Group commands for users who may see or debug only some ranks.

use super::in_the_middle::Prompt;
use super::*;

/// Eight ranks, and a user who may list all and debug five of them.
async fn eight(keys: &Keys, policy: &std::path::Path) -> Running {
    let tasks: Vec<String> = (1..6).map(|number| format!("rank-{number}")).collect();
    let rules = format!(
        "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"list\"]\n[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\"]\ntasks = {tasks:?}\n"
    );
    std::fs::write(policy, rules).unwrap();
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.auth.policy_file = Some(policy.to_owned());
        config.park.r#for = TEST_TIMEOUT;
    });
    let relay = relay.await;
    for number in 0..8 {
        let reaction = match number {
            3 => Reaction::Says("nan"),
            _ => Reaction::Says("0.6931"),
        };
        rank(&relay, number, reaction).await;
    }
    relay
}

/// The three that are seen and not debugged are named, with the reason.
fn assert_named(text: &str) {
    for number in [0, 6, 7] {
        let message =
            format!("\n! {number}: ann may not do that here: it needs the permission `view`");
        assert!(text.contains(&message), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_covers_debuggable_ranks_and_names_only_visible_ones() {
    let _turn = TURN.lock().await;
    let keys = Keys::new();
    let dir = tempfile::tempdir().unwrap();
    let relay = eight(&keys, &dir.path().join("policy.toml")).await;
    let address = relay.local_addr();
    let words = ["exec", "--all", "--stay", "--", "p loss"];
    let expected = "(Pdb) p loss\n3:       nan  ← odd\n1,2,4,5: 0.6931\n";
    // A token of its own narrows what is seen to five.
    let tasks: Vec<String> = (1..6).map(|number| format!("rank-{number}")).collect();
    let five = keys.token(|claims| {
        claims["scope"] = "list,debug".into();
        claims["ray_relay"] = json!({ "tasks": tasks });
    });
    let (output, text) = ray_relay(address, Some(&five), &words).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.starts_with(&format!("Trainer: 5 tasks by rank\n\n{expected}")),
        "{text}"
    );
    let all = keys.token(|claims| claims["scope"] = "list,debug".into());
    let (output, text) = ray_relay(address, Some(&all), &words).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.starts_with(&format!("Trainer: 8 tasks by rank\n\n{expected}")),
        "{text}"
    );
    assert_named(&text);
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_covers_debuggable_ranks_and_names_only_visible_ones() {
    let _turn = TURN.lock().await;
    let keys = Keys::new();
    let dir = tempfile::tempdir().unwrap();
    let relay = eight(&keys, &dir.path().join("policy.toml")).await;
    let tasks: Vec<String> = (1..6).map(|number| format!("rank-{number}")).collect();
    let five = keys.token(|claims| claims["ray_relay"] = json!({ "tasks": tasks }));
    let mut prompt = Prompt::open_by(relay.local_addr(), Some(&five));
    let opened = prompt.answer().await;
    assert!(opened.starts_with("Trainer: 5 tasks by rank\n"), "{opened}");
    assert!(
        !opened.contains('!') && opened.ends_with("(Pdb ×5) "),
        "{opened}"
    );
    drop(prompt);
    relay.abort().await;

    let relay = eight(&keys, &dir.path().join("policy.toml")).await;
    let all = keys.token(|_| {});
    let mut prompt = Prompt::open_by(relay.local_addr(), Some(&all));
    let opened = prompt.answer().await;
    assert_named(&opened);
    assert!(opened.ends_with("(Pdb ×5) "), "{opened}");
    let reply = prompt.ask("p loss\n").await;
    assert_eq!(reply, "3:       nan  ← odd\n1,2,4,5: 0.6931\n(Pdb ×5) ");
    relay.abort().await;
}
