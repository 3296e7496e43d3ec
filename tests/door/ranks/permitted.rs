//! Who may see or debug some of the ranks: the command and the prompt have those, and others are named only where they are seen.

use super::in_the_middle::Prompt;
use super::*;

/// Eight ranks at a relay of a person who may list all, and debug five of them.
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
        let does = match number {
            3 => Does::Says("nan"),
            _ => Does::Says("0.6931"),
        };
        rank(&relay, number, does).await;
    }
    relay
}

/// The three that are seen and not debugged are named, with the reason.
fn assert_named(text: &str) {
    for number in [0, 6, 7] {
        let told =
            format!("\n! {number}: ann may not do that here: it needs the permission `view`");
        assert!(text.contains(&told), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_has_those_that_one_may_debug_and_names_others_only_where_one_sees_them() {
    let _turn = TURN.lock().await;
    let keys = Keys::new();
    let dir = tempfile::tempdir().unwrap();
    let relay = eight(&keys, &dir.path().join("policy.toml")).await;
    let address = relay.local_addr();
    let words = ["exec", "--all", "--stay", "--", "p loss"];
    let told = "(Pdb) p loss\n3:       nan  ← odd\n1,2,4,5: 0.6931\n";
    // A token of its own narrows what is seen to five.
    let tasks: Vec<String> = (1..6).map(|number| format!("rank-{number}")).collect();
    let five = keys.token(|claims| {
        claims["scope"] = "list,debug".into();
        claims["ray_relay"] = json!({ "tasks": tasks });
    });
    let (output, text) = ray_relay(address, Some(&five), &words).await;
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.starts_with(&format!("Trainer: 5 tasks by rank\n\n{told}")),
        "{text}"
    );
    let all = keys.token(|claims| claims["scope"] = "list,debug".into());
    let (output, text) = ray_relay(address, Some(&all), &words).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.starts_with(&format!("Trainer: 8 tasks by rank\n\n{told}")),
        "{text}"
    );
    assert_named(&text);
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_has_those_that_one_may_debug_and_names_others_only_where_one_sees_them() {
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
    let told = prompt.ask("p loss\n").await;
    assert_eq!(told, "3:       nan  ← odd\n1,2,4,5: 0.6931\n(Pdb ×5) ");
    relay.abort().await;
}
