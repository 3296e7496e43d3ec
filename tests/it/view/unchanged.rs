//! A session leaves the process unchanged and running.

use std::time::{Duration, Instant};

use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::dap::mappings;
use ray_relay_dap::message_filter::MessageFilter;
use serde_json::{Value, json};

use super::client::{Client, attach_arguments};
use super::rights;
use super::watched::{Watched, script};
use crate::support::dap_client::TEST_TIMEOUT;

/// The path of the frame that a client sees that attaches with `arguments`, and leaves again.
async fn path_shown_to(watched: &Watched, scope: Scope, arguments: Value) -> String {
    let filter = MessageFilter::new(&rights(scope), &Principal::anonymous());
    let mut client = Client::attach(watched, filter, arguments).await;
    let thread = client.thread;
    let stack = client
        .request("stackTrace", json!({"threadId": thread}))
        .await;
    let path = stack["body"]["stackFrames"][0]["source"]["path"].as_str();
    let path = path.unwrap().to_owned();
    client.leave(watched).await;
    path
}

/// `arguments` as the relay sends them.
fn settled(arguments: Value) -> Value {
    let Value::Object(mut arguments) = arguments else {
        panic!("{arguments}");
    };
    mappings::settle(&mut arguments);
    arguments.into()
}

#[tokio::test]
async fn session_does_not_inherit_path_mappings() {
    let Some(watched) = Watched::start().await else {
        return;
    };
    let folder = script().parent().unwrap().display().to_string();
    let mut of_ann = attach_arguments();
    of_ann["pathMappings"] = json!([{"localRoot": "/home/ann/project", "remoteRoot": folder}]);
    let mut of_win = of_ann.clone();
    of_win["pathMappings"][0]["localRoot"] = "c:\\ann".into();
    of_win["clientOS"] = "windows".into();
    let mut empty = attach_arguments();
    empty["pathMappings"] = json!([]);

    let mapped = "/home/ann/project/watched.py";
    let path = path_shown_to(&watched, Scope::Debug, settled(of_ann.clone())).await;
    assert_eq!(path, mapped);
    // The behaviour of debugpy that the relay works around.
    assert_eq!(
        path_shown_to(&watched, Scope::Debug, empty.clone()).await,
        mapped
    );

    let true_path = script().display().to_string();
    for of_another in [of_ann, of_win] {
        for scope in [Scope::View, Scope::Debug] {
            let path = path_shown_to(&watched, scope, settled(of_another.clone())).await;
            assert_ne!(path, true_path);
            for next in [Scope::View, Scope::Debug] {
                for arguments in [attach_arguments(), empty.clone()] {
                    let path = path_shown_to(&watched, next, settled(arguments)).await;
                    assert_eq!(path, true_path, "{scope} and then {next}");
                }
            }
        }
    }
}

#[tokio::test]
async fn malformed_boolean_ends_the_process_only_without_view() {
    for (scope, value) in [
        (Scope::Debug, json!(1)),
        (Scope::View, json!(1)),
        (Scope::View, json!("true")),
        (Scope::View, json!({"a": 1})),
    ] {
        let Some(mut watched) = Watched::start().await else {
            return;
        };
        // Of `debug`, which is judged further on, these rules pass everything on as it is.
        let dies = scope == Scope::Debug;
        let filter = MessageFilter::new(&rights(scope), &Principal::anonymous());
        let mut client = Client::attach(&watched, filter, attach_arguments()).await;
        let before = watched.turns();
        client
            .request("disconnect", json!({"terminateDebuggee": value}))
            .await;
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            let removed = watched.process.try_wait().unwrap().is_some();
            assert!(!removed || dies, "{value}: the process is gone");
            if removed || (!dies && watched.turns() >= before + 3) {
                break;
            }
            assert!(Instant::now() < end, "{value}: nothing happened");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
