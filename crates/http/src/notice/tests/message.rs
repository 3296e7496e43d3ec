//! The text of a notice.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::ann;
use crate::notice::message::Notice;
use ray_relay_base::config::{self, NoticeEvent, NoticeForm};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::timestamp::testing::ago;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Location, Running, State};
use ray_relay_ray::ray::testing::{paused, running};
use ray_relay_session::hangs::JudgedJob;

fn stopped(name: &str) -> Breakpoint {
    let mut breakpoint = paused(name, 1);
    breakpoint.first_seen = ago(Duration::from_secs(31 * 60));
    breakpoint.location = Some(Arc::new(Location {
        file: "square.py".to_owned(),
        line: 12,
        function: "square".to_owned(),
    }));
    breakpoint
}

fn body_of(
    config: &config::Notice,
    event: NoticeEvent,
    breakpoint: &Breakpoint,
    holder: Option<&Holder>,
) -> Value {
    let notice = Notice::new(config, event, breakpoint, holder, Timestamp::now());
    serde_json::from_slice(&notice.body).unwrap()
}

#[test]
fn notice_names_the_task_its_location_and_waiting_time() {
    let config = config::Notice {
        link: Some("https://relay.example.com/team".to_owned()),
        ..config::Notice::default()
    };
    let breakpoint = stopped("square");
    let mut body = body_of(&config, NoticeEvent::Paused, &breakpoint, None);
    assert_eq!(body["id"].take().as_str().unwrap().len(), 32);
    assert!(body["time"].take().as_f64().unwrap() > 1e9);
    let link = format!("https://relay.example.com/team/relay/#{}", breakpoint.id);
    let text = "square on default waits at a breakpoint: stopped 31m 00s ago at square.py:12, held by no client.";
    let expected = json!({
        "id": null, "event": "paused", "time": null, "text": format!("{text} {link}"), "link": link,
        "breakpoint": {
            "id": breakpoint.id, "cluster": "default", "node_id": *breakpoint.node_id, "node_ip": "10.88.0.1",
            "worker_id": *breakpoint.worker_id, "job_id": null, "submission_id": null, "name": "square",
            "location": {"file": "square.py", "line": 12, "function": "square"},
            "stop": 1, "waiting_seconds": 1860, "holder": null,
        },
    });
    assert_eq!(body, expected);
}

#[test]
fn death_notice_names_the_holder_but_not_the_cause() {
    let mut breakpoint = stopped("square");
    breakpoint.state = State::Died {
        at: Timestamp::now(),
        why: "ValueError: hunter2".into(),
        intended: false,
    };
    let config = config::Notice::default();
    let body = body_of(&config, NoticeEvent::Died, &breakpoint, Some(&ann()));
    let text = "square on default has died: stopped 31m 00s ago at square.py:12, held by ann.";
    assert_eq!(body["text"], text);
    assert_eq!(
        (&body["breakpoint"]["holder"], &body["link"]),
        (&json!("ann"), &Value::Null)
    );
    let text = body.to_string();
    assert!(
        !text.contains("hunter2") && !text.contains("10.0.0.9"),
        "{text}"
    );
    let nameless = Holder {
        subject: None,
        ..ann()
    };
    let body = body_of(&config, NoticeEvent::Parked, &breakpoint, Some(&nameless));
    assert_eq!(body["breakpoint"]["holder"], "a client");
}

#[test]
fn cluster_text_is_escaped_for_slack() {
    let config = config::Notice {
        form: NoticeForm::Slack,
        text: "<!here> {name} {holder} {job}{node}".parse().unwrap(),
        ..config::Notice::default()
    };
    let breakpoint = stopped("<!channel> & <https://evil|x>\u{202e}\n\u{1b}[2J");
    let holder = Holder {
        subject: Some("<@U1>".to_owned()),
        ..ann()
    };
    let body = body_of(&config, NoticeEvent::Parked, &breakpoint, Some(&holder));
    let text = "<!here> &lt;!channel&gt; &amp; &lt;https://evil|x&gt;��[2J &lt;@U1&gt; an unknown job10.88.0.1";
    let text = text.replace("��[2J", "���[2J");
    assert_eq!(
        body,
        json!({"text": text, "unfurl_links": false, "unfurl_media": false})
    );
    let body = body_of(
        &config,
        NoticeEvent::Paused,
        &stopped(&"<".repeat(5000)),
        None,
    );
    assert!(body["text"].as_str().unwrap().len() < 1000, "{body}");
}

#[test]
fn hang_notice_has_the_verdict_and_is_escaped() {
    let sentence = "Rank 2 of <!channel> holds the others up (likely).";
    let culprit = json!({"group": "Trainer", "tasks": "rank 2", "worker_id": null, "pid": 7, "node_ip": null, "at": null,
        "reason": "sleeps", "still_seconds": 60.0});
    let mut verdict = json!({"verdict": "hangs", "confidence": "likely", "summary": sentence, "culprits": [culprit],
        "evidence": ["Rank 2 sleeps\u{202e} in load (data.py:12).", "x".repeat(5000)], "waiting": [], "differences": [], "next": []});
    let mut task = running("train", "0c");
    task.names.submission_id = Some("raysubmit_a".to_owned());
    let judged = |tasks: &[Running], verdict: &Value| {
        let verdict = serde_json::from_value(verdict.clone()).unwrap();
        JudgedJob::new("01000000".to_owned(), tasks, verdict, Timestamp::now()).unwrap()
    };
    let job = judged(&[task.clone()], &verdict);
    let body_in = |form: NoticeForm| -> Value {
        let config = config::Notice {
            form,
            link: Some("https://relay.example.com".to_owned()),
            ..config::Notice::default()
        };
        let notice = Notice::of_hang(&config, &job, Timestamp::now()).unwrap();
        serde_json::from_slice(&notice.body).unwrap()
    };
    let body = body_in(NoticeForm::Json);
    let link = "https://relay.example.com/relay/#why=raysubmit_a&cluster=default";
    assert_eq!(
        (&body["event"], &body["link"]),
        (&json!("hangs"), &json!(link))
    );
    assert_eq!(
        body["job"],
        json!({"cluster": "default", "job_id": "01000000", "submission_id": "raysubmit_a"})
    );
    assert_eq!(body["verdict"]["summary"], verdict["summary"]);
    let text = body["text"].as_str().unwrap();
    assert!(
        text.starts_with("Job raysubmit_a on default hangs. Rank 2 of <!channel> holds"),
        "{text}"
    );
    assert!(
        text.ends_with(link) && text.len() < 2000 && !text.contains('\u{202e}'),
        "{text}"
    );
    let slack = body_in(NoticeForm::Slack);
    let text = slack["text"].as_str().unwrap();
    assert!(text.contains("&lt;!channel&gt;"), "{text}");
    // A name that a shell would not read as it is stands in no command.
    task.names.submission_id = Some("x; rm -rf ~".to_owned());
    let now = Timestamp::now();
    let job = judged(&[task.clone()], &verdict);
    let notice = Notice::of_hang(&config::Notice::default(), &job, now);
    let body: Value = serde_json::from_slice(&notice.unwrap().body).unwrap();
    let text = body["text"].as_str().unwrap();
    assert!(
        text.contains("`ray-relay why --job 01000000`") && !text.contains("rm -rf"),
        "{text}"
    );
    // That a task waits for a node is no news.
    verdict["culprits"][0]["group"] = Value::Null;
    let job = judged(&[task], &verdict);
    assert!(Notice::of_hang(&config::Notice::default(), &job, now).is_none());
}
