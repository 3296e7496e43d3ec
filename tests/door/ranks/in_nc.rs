//! One prompt for many ranks with nothing but `nc`: `all` at the list of the one port.

use ray_relay_base::config::AuditSink;
use tokio::io::AsyncReadExt as _;

use super::audit::{began, groups, recorded};
use super::*;

/// A user of `nc`.
struct Nc(TcpStream);

impl Nc {
    /// Connects and sends `lines` at once.
    async fn saying(relay: SocketAddr, text: &str) -> Self {
        let mut nc = Self(dial(relay).await);
        nc.say(text).await;
        nc
    }

    async fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Returns the output up to `expected`.
    async fn until(&mut self, expected: &str) -> String {
        let mut received = Vec::new();
        while !received.ends_with(expected.as_bytes()) {
            let read = timeout(TEST_TIMEOUT * 3, self.0.read_buf(&mut received)).await;
            let text = String::from_utf8_lossy(&received);
            let read = read.unwrap_or_else(|_| panic!("no {expected:?} in {text}"));
            assert_ne!(read.unwrap(), 0, "no {expected:?} in {text}");
        }
        String::from_utf8(received).unwrap()
    }

    async fn ask(&mut self, line: &str, expected: &str) -> String {
        self.say(&format!("{line}\n")).await;
        self.until(expected).await
    }
}

/// The end of the list.
const LIST: &str = "Index, id or name (Enter refreshes, q leaves): ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nc_group_prompt_names_dead_and_held_ranks() {
    let _turn = TURN.lock().await;
    let relay = keeping().await;
    let address = relay.local_addr();
    for number in 0..8 {
        let reaction = match number {
            3 => Reaction::Says("nan"),
            4 => Reaction::Nothing,
            5 => Reaction::Dies,
            _ => Reaction::Says("0.6931"),
        };
        rank(&relay, number, reaction).await;
    }
    let _held = held(address, 7).await;

    let mut nc = Nc::saying(address, "\n").await;
    let list = nc.until(LIST).await;
    assert!(list.contains("\n`all` debugs all of this list"), "{list}");
    let opened = nc.ask("all Trainer", "(Pdb ×7) ").await;
    assert!(opened.starts_with("Trainer: 8 tasks by rank\n"), "{opened}");
    assert!(opened.contains("\n! 7: "), "{opened}");
    assert!(opened.contains(" has it\n"), "{opened}");
    // One dies in the middle of the command, and one says nothing until it is interrupted.
    nc.say("p loss\n").await;
    let hint = nc.until("leaves running what runs]\n").await;
    assert!(
        hint.starts_with("[waiting for 4; `interrupt` interrupts"),
        "{hint}"
    );
    let reply = nc.ask("interrupt", "(Pdb ×6) ").await;
    let folded = "3:     nan  ← odd\n4:     *** the expression goes on in the task, ";
    assert!(reply.starts_with(folded), "{reply}");
    assert_eq!(nc.ask("focus 4", ") ").await, "(Pdb 4) ");
    let remaining = nc.ask("q", "(Pdb ×5) ").await;
    let expected_notice =
        "! 4: an expression goes on in the task, which runs on when that ends\n(Pdb ×5) ";
    assert!(remaining.ends_with(expected_notice), "{remaining}");
    assert_eq!(nc.ask("focus 3", ") ").await, "(Pdb 3) ");
    assert_eq!(nc.ask("p loss", "(Pdb 3) ").await, "nan\n(Pdb 3) ");
    let reply = nc.ask("focus 9", "(Pdb 3) ").await;
    let refused = "*** none of these is at the prompt; 0-3,6 are\n(Pdb 3) ";
    assert_eq!(reply, refused);
    assert_eq!(nc.ask("focus all", ") ").await, "(Pdb ×5) ");
    let tree = nc.ask("where", "(Pdb ×5) ").await;
    let stacks = "0-3,6  run (/job.py:30)\n0-2,6    step (/job.py:9)\n3        step (/job.py:12)\n";
    assert_eq!(tree, format!("{stacks}(Pdb ×5) "));
    let remaining = nc.ask("q", LIST).await;
    let runs_on = "! 0-3,6: the task runs on without a debugger\n";
    assert!(remaining.contains(runs_on), "{remaining}");
    relay.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nc_prompt_covers_permitted_ranks_with_one_audit_line() {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy"), folder.path().join("audit"));
    let tasks: Vec<String> = (1..6).map(|number| format!("rank-{number}")).collect();
    let rules = format!(
        "[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"list\"]\n[[rule]]\nsubjects = [\"ann\"]\nscopes = [\"debug\", \"terminal\"]\ntasks = {tasks:?}\n"
    );
    std::fs::write(&policy, rules).unwrap();
    let keys = Keys::new();
    let relay = start(|config| {
        config.auth.keys = vec![keys.public()];
        config.auth.policy_file = Some(policy);
        config.audit.sink = AuditSink::File;
        config.audit.file = Some(log.clone());
    });
    let relay = relay.await;
    let address = relay.local_addr();
    let mut ids = Vec::new();
    for number in 0..8 {
        let one = rank(&relay, number, Reaction::Says("0.6931")).await;
        ids.push(one.id.to_string());
    }
    // Of those that a token narrows to five there is no word of others.
    let narrowed = keys.token(|claims| claims["ray_relay"] = json!({ "tasks": tasks }));
    let mut nc = Nc::saying(address, &format!("all ranks=4-7\n{narrowed}\n")).await;
    let opened = nc.until("(Pdb ×2) ").await;
    let begun = "Trainer: 2 tasks by rank\n";
    assert!(opened.contains(begun) && !opened.contains('!'), "{opened}");
    nc.ask("q", "debugger\n").await;
    drop(nc);
    let all = keys.token(|_| {});
    let mut nc = Nc::saying(address, &format!("all ranks=0-3\n{all}\n")).await;
    let opened = nc.until("(Pdb ×3) ").await;
    let refused = "! 0: ann may not do that here: it needs the permission `terminal`";
    assert!(opened.contains(refused), "{opened}");
    let reply = nc.ask("p loss", "(Pdb ×3) ").await;
    assert_eq!(reply, "1-3: 0.6931\n(Pdb ×3) ");
    nc.ask("q", "debugger\n").await;
    drop(nc);
    relay.abort().await;

    let lines = recorded(&log);
    let groups = groups(&lines);
    assert_eq!(groups.len(), 2, "{groups:?}");
    assert_eq!(groups[1]["details"]["members"], json!(ids[..4]));
    assert_eq!(groups[0]["details"]["members"], json!(ids[4..6]));
    assert_eq!(groups[1]["details"]["client"], "ray-relay terminal");
    assert_ne!(groups[0]["request"], groups[1]["request"]);
    let began = began(&lines);
    assert_eq!(began[..2], [(&json!("ann"), &groups[0]["request"]); 2]);
    assert_eq!(began[2..], [(&json!("ann"), &groups[1]["request"]); 3]);
    let denied = lines.iter().filter(|line| {
        line["details"]["outcome"] == "denied" && line["details"]["asked"] == ids[0].as_str()
    });
    assert_eq!(denied.count(), 1, "{lines:?}");
}
