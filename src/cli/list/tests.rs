//! Tests tables at several widths, and lists of every shape.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::page::{folded, page};
use ray_relay_view::listing::row::{List, Row};
use ray_relay_view::listing::text::width;

fn list() -> Value {
    json!({
        "breakpoints": [
            {"id": "3k9x7a2q", "state": "paused", "holder": null, "cluster": "default", "node_ip": "10.0.0.7",
             "worker_id": "0123456789abcdef", "name": "train_step", "rank": 3, "reason": "breakpoint",
             "location": {"file": "src/model/train.py", "line": 26, "function": "f"}, "waiting_seconds": 134.9},
            {"id": "m4n8p2r6", "state": "attached",
             "holder": {"session": 1, "client": "Visual Studio Code", "peer": "10.1.2.3:50000", "since": 1.5},
             "cluster": "default", "node_ip": "10.0.0.12", "worker_id": "ff", "name": "Trainer.fit",
             "actor_name": "数据", "reason": "post_mortem", "location": null, "waiting_seconds": 3.2},
        ],
        "snapshot_age_seconds": 0.4,
        "clusters": [{"name": "default", "ray_version": "2.60.0", "snapshot_age_seconds": 0.4, "trouble": null}],
    })
}

#[test]
fn piped_output_is_not_truncated() {
    assert_eq!(
        page(&list(), None),
        "\
ID        TASK                              WHERE                  NODE       WAITING  HOLDER
3k9x7a2q  train_step rank 3                 src/model/train.py:26  10.0.0.7   2m 14s   -
m4n8p2r6  Trainer.fit [数据] (post-mortem)  -                      10.0.0.12  3s       Visual Studio Code from 10.1.2.3:50000
"
    );
}

#[test]
fn rows_at_one_location_are_folded_at_a_terminal_only() {
    let mut list = list();
    let rank = |rank: usize| {
        json!({"id": format!("rank{rank:04}"), "state": "paused", "node_ip": "10.0.0.7", "name": "Trainer.step", "group": "Trainer",
            "rank": rank, "location": {"file": if rank == 3 { "loss.py" } else { "train.py" }, "line": 42}, "waiting_seconds": 3.2})
    };
    list["breakpoints"] = (0..8).map(rank).collect();
    assert_eq!(
        folded(&list, Some(80)),
        "\
ID        TASK                        WHERE        NODE      WAITING  HOLDER
7 of 8    Trainer.step ranks 0-2,4-7  train.py:42  10.0.0.7  3s       -
rank0003  Trainer.step rank 3         loss.py:42   10.0.0.7  3s       -
`7 of 8` stands for several alike: --flat lists each, `ray-relay diff` compares.
"
    );
    assert_eq!(folded(&list, None), page(&list, None), "each line is a row");
    assert_eq!(page(&list, Some(80)).lines().count(), 9);
    list["breakpoints"] = (0..4).map(rank).collect();
    assert_eq!(
        folded(&list, Some(80)),
        page(&list, Some(80)),
        "few are shown each"
    );
}

#[test]
fn widest_columns_shrink_first() {
    assert_eq!(
        page(&list(), Some(80)),
        "\
ID        TASK              WHERE            NODE       WAITING  HOLDER
3k9x7a2q  train_step rank…  …el/train.py:26  10.0.0.7   2m 14s   -
m4n8p2r6  Trainer.fit [数…  -                10.0.0.12  3s       Visual Studio …
"
    );
}

#[test]
fn unknown_location_is_explained_at_a_terminal_only() {
    let mut list = list();
    for row in list["breakpoints"].as_array_mut().unwrap() {
        row["kind"] = "debugpy".into();
        row["waiting_seconds"] = 60.into();
    }
    let hint = "`ray-relay doctor`";
    assert_eq!(page(&list, Some(80)).matches(hint).count(), 1);
    let longest = page(&list, Some(80)).lines().map(width).max();
    assert!(longest <= Some(80), "{longest:?}");
    assert!(!page(&list, None).contains(hint), "each line is a row");
    assert!(!page(&list, Some(45)).contains(hint), "no such column");
    let mut old = list.clone();
    old["clusters"][0]["ray_version"] = "2.44.0".into();
    assert!(!page(&old, Some(80)).contains(hint), "its head says it");
    list["breakpoints"].as_array_mut().unwrap().pop();
    assert!(!page(&list, Some(80)).contains(hint), "all are known");
}

#[test]
fn narrow_terminals_drop_columns() {
    assert_eq!(
        page(&list(), Some(45)),
        "\
ID        TASK          WAITING  HOLDER
3k9x7a2q  train_step …  2m 14s   -
m4n8p2r6  Trainer.fit…  3s       Visual Stud…
"
    );
    assert_eq!(
        page(&list(), Some(30)),
        "\
ID        TASK         WAITING
3k9x7a2q  train_step…  2m 14s
m4n8p2r6  Trainer.fi…  3s
"
    );
    assert_eq!(
        page(&list(), Some(20)),
        "\
ID        TASK
3k9x7a2q  train_ste…
m4n8p2r6  Trainer.f…
"
    );
}

#[test]
fn gpu_column_appears_for_held_gpus() {
    let mut list = list();
    list["breakpoints"][1]["resources"] =
        json!({"CPU": 8.0, "GPU": 0.5, "accelerator_type:A100": 0.001});
    let text = page(&list, None);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains("WAITING  GPUS  HOLDER"), "{text}");
    assert!(lines[1].contains("2m 14s   -     -"), "{text}");
    assert!(lines[2].contains("3s       0.5   Visual"), "{text}");
    let row = Row::read(&list["breakpoints"][1]);
    assert_eq!(row.holds, "0.5 GPU (A100), 8 CPU");
}

#[test]
fn timeout_column_shows_the_collective_limit() {
    let mut list = list();
    list["breakpoints"][0]["first_seen"] = json!(1000.0);
    list["breakpoints"][0]["collective_ends"] = json!(2800.0);
    let text = page(&list, None);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains("WAITING  TIMEOUT  HOLDER"), "{text}");
    assert!(lines[1].contains("2m 14s   27m 45s  -"), "{text}");
    assert!(lines[2].contains("3s       -        Visual"), "{text}");
}

#[test]
fn several_clusters_have_a_column() {
    let mut list = list();
    list["clusters"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "gpu", "trouble": null}));
    let text = page(&list, None);
    assert!(text.lines().next().unwrap().contains("CLUSTER"));
}

#[test]
fn empty_list_names_the_next_step() {
    let text = page(&json!({"breakpoints": [], "clusters": []}), Some(80));
    assert!(text.starts_with("No task waits at a breakpoint."), "{text}");
    assert!(text.contains("breakpoint()"), "{text}");
    let unreachable = json!([{"name": "default", "trouble": "cannot reach the Ray head"}]);
    let text = page(
        &json!({"breakpoints": [], "clusters": unreachable}),
        Some(80),
    );
    assert!(
        text.contains("cannot reach") && text.contains("No task is known to wait"),
        "{text}"
    );
}

#[test]
fn list_warnings_precede_the_table() {
    let mut list = list();
    list["clusters"][0]["trouble"] =
        json!("cannot reach the Ray head at http://head:8265: refused");
    list["clusters"][0]["snapshot_age_seconds"] = json!(95.0);
    let text = page(&list, Some(80));
    assert!(
        text.starts_with("! cluster default: cannot reach the Ray head at http://head:8265: refused (list of 1m 35s ago)\n\nID"),
        "{text}"
    );
    list["clusters"][0]["trouble"] = Value::Null;
    assert!(page(&list, None).starts_with("! cluster default: this list is 1m 35s old\n"));
    list["clusters"] = json!([]);
    list["snapshot_age_seconds"] = json!(7.0);
    assert!(page(&list, None).starts_with("! this list is 7s old\n"));
}

#[test]
fn head_outage_and_recovery_are_reported_once() {
    let healthy = List::read(&list());
    let mut failing = list();
    failing["clusters"][0]["trouble"] = json!("cannot reach the Ray head");
    let failing = List::read(&failing);
    let outage = ["cluster default: cannot reach the Ray head"];
    assert_eq!(failing.changes(&healthy), outage);
    let recovery = ["cluster default: its head answers again"];
    assert_eq!(healthy.changes(&failing), recovery);
    assert!(failing.changes(&failing).is_empty() && healthy.changes(&healthy).is_empty());
}

#[test]
fn cluster_names_contain_no_control_characters() {
    let mut list = list();
    list["breakpoints"][0]["name"] = json!("evil\u{1b}[2J\nname\u{202e}");
    list["breakpoints"][0]["location"]["file"] = json!("a\tb.py");
    list["clusters"][0]["trouble"] = json!("bad\u{7}");
    let text = page(&list, None);
    assert!(
        text.contains("evil�[2J�name�") && text.contains("a�b.py:26") && text.contains("bad�"),
        "{text}"
    );
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn ended_rows_show_their_cause() {
    let row = json!({"id": "x", "state": "died", "why": "the node ran out of memory", "waiting_seconds": 1});
    assert_eq!(Row::read(&row).holder, "died: the node ran out of memory");
    assert_eq!(Row::read(&json!({"state": "released"})).holder, "released");
}

#[test]
fn malformed_list_does_not_panic() {
    for value in [
        json!(null),
        json!({"breakpoints": [1, null, {}, {"location": 5, "holder": "x"}], "clusters": {}}),
    ] {
        assert!(!page(&value, Some(40)).is_empty());
        let _ = List::read(&value).troubles();
    }
}

proptest! {
    #[test]
    fn table_fits_every_width(columns in 1usize..200, name in ".{0,60}", client in ".{0,30}", file in ".{0,60}") {
        let mut list = list();
        list["breakpoints"][0]["name"] = json!(name);
        list["breakpoints"][1]["holder"]["client"] = json!(client);
        list["breakpoints"][0]["location"]["file"] = json!(file);
        for line in page(&list, Some(columns)).lines() {
            prop_assert!(width(line) <= columns, "{line:?}");
        }
    }
}
