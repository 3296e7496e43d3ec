//! The rules of a session in the session itself: what a worker hears of somebody who may only look.

use super::identity::{relay, with_token, worker};
use super::*;
use crate::dap::message_filter::MessageFilter;
use crate::identity::testing::token_of;
use crate::masking::Masking;
use crate::policy::{Rights, Scopes, SessionObligations};
use crate::wire::dap::peek::MessageType;

#[tokio::test]
async fn a_worker_hears_of_a_viewer_what_cannot_run_code_and_the_viewer_sees_no_secrets() {
    let relay = relay(Audit::off(), |config| config.masking.enabled = true);
    let worker = worker(&relay).await;
    let mut arguments = with_token(token_of("vic"));
    arguments["guiEventLoop"] = "os.system".into();
    let (mut debugger, _) = Debugger::attaching(&relay, arguments).await;
    let (mut dap, attach) = worker.attached().await;
    assert_eq!(attach["arguments"].get("guiEventLoop"), None, "{attach}");
    let told = debugger.event("capabilities").await;
    assert_eq!(
        told["body"]["capabilities"]["supportsConditionalBreakpoints"],
        false
    );

    let run = json!({"expression": "f()", "frameId": 1});
    let refused = debugger.ask("evaluate", run).await;
    assert_eq!(refused["success"], false);
    let why = refused["message"].as_str().unwrap();
    assert!(why.contains("permission `debug`"), "{refused}");

    let hover = json!({"expression": "total", "frameId": 1, "context": "hover"});
    let asked = debugger.send("evaluate", hover).await;
    // The first thing since the attach.
    let scopes = got(&mut dap, "scopes").await;
    let found = json!({"scopes": [{"name": "Locals", "variablesReference": 5}]});
    dap.send(&scopes.success(found)).await.unwrap();
    let list = got(&mut dap, "variables").await;
    assert_eq!(list.arguments, json!({"variablesReference": 5}));
    let found = json!({"variables": [{"name": "total", "value": "{'password': 'hunter2'}", "variablesReference": 6}]});
    dap.send(&list.success(found)).await.unwrap();
    let answer = debugger.answer(asked).await;
    assert_eq!(answer["body"]["result"], "{'password': ‹masked›}");

    // One that only Python takes for JSON is looked through all the same.
    let output = br#"{"seq": 9, "type": "event", "event": "output", "body": {"output": "\udc80 password=hunter2"}}"#;
    let mut frame = Vec::new();
    codec::put_frame(&mut frame, output);
    let (mut stream, _) = dap.into_parts();
    stream.write_all(&frame).await.unwrap();
    let is_that = |m: &Value| m["event"] == "output" && m["seq"] == 9;
    let shown = debugger.until(is_that).await;
    assert_eq!(shown["body"]["output"], "\u{fffd} password=‹masked›");
}

#[test]
fn who_may_do_and_see_everything_has_nothing_looked_at() {
    let masking = Masking::new(&crate::config::Masking {
        enabled: true,
        ..Default::default()
    });
    let masking = Some(Arc::new(masking));
    let rights = |scopes: &str, unmasked: bool| Rights {
        scopes: scopes.parse::<Scopes>().unwrap(),
        obligations: SessionObligations {
            unmasked,
            ..SessionObligations::default()
        },
    };
    for (rights, masking, looked_at) in [
        (rights("debug", false), None, [false, false, false]),
        (
            rights("debug", true),
            masking.as_ref(),
            [false, false, false],
        ),
        (rights("view", true), masking.as_ref(), [true, true, false]),
        (rights("debug", false), masking.as_ref(), [true, true, true]),
        (rights("view", false), masking.as_ref(), [true, true, true]),
    ] {
        let filter = MessageFilter::new(&rights, masking);
        let up = filter.captures_from_client(messages::captures_from_client);
        let down = filter.captures_from_worker();
        assert_eq!(
            [
                up(MessageType::Request, b"evaluate"),
                down(MessageType::Response, b"variables"),
                down(MessageType::Event, b"output")
            ],
            looked_at,
            "{rights:?}"
        );
        // What the relay looks at for itself it always does.
        assert!(up(MessageType::Request, b"disconnect"));
        assert!(down(MessageType::Event, b"debugpySockets"));
    }
}
