#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::dap::testing::paused;

#[test]
fn rays_own_breakpoint_survives_just_my_code() {
    let breakpoint = paused("square", 1);
    for mine in [
        json!({}),
        json!({"justMyCode": true}),
        json!({"justMyCode": null}),
    ] {
        let sent = for_worker(&mine, &breakpoint, None);
        assert_eq!(
            sent["rules"],
            json!([{"path": RAY_HELPER, "include": true}]),
            "{mine}"
        );
        assert_eq!(
            sent.get("justMyCode"),
            mine.get("justMyCode"),
            "the user's setting is not touched"
        );
    }
    let rules = json!({"justMyCode": true, "rules": [{"path": "**/mine/**", "include": false}]});
    let sent = for_worker(&rules, &breakpoint, None);
    assert_eq!(
        sent["rules"],
        json!([{"path": RAY_HELPER, "include": true}, {"path": "**/mine/**", "include": false}])
    );
    assert!(
        for_worker(&json!({"justMyCode": false}), &breakpoint, None)
            .get("rules")
            .is_none()
    );
}

#[test]
fn the_working_dir_is_mapped_only_where_there_is_one_and_nobody_said_otherwise() {
    let mut breakpoint = paused("square", 1);
    let mine = json!({"workspaceFolder": "/home/me/project"});
    assert_eq!(
        for_worker(&mine, &breakpoint, None)["pathMappings"],
        mappings::none(),
        "debugpy keeps those of whoever was there before"
    );
    let explicit = json!([{"localRoot": "/src", "remoteRoot": "."}]);
    assert_eq!(
        for_worker(&mine, &breakpoint, Some("/src"))["pathMappings"],
        explicit
    );
    breakpoint.names.unpacked_working_dir = true;
    let expected = json!([{"localRoot": "/home/me/project", "remoteRoot": "."}]);
    assert_eq!(
        for_worker(&mine, &breakpoint, None)["pathMappings"],
        expected
    );
    let own =
        json!({"workspaceFolder": "/w", "pathMappings": [{"localRoot": "/a", "remoteRoot": "/b"}]});
    assert_eq!(
        for_worker(&own, &breakpoint, Some("/src"))["pathMappings"],
        own["pathMappings"]
    );
    // A subprocess inherits what its parent's session was given.
    for none in [json!([]), mappings::none()] {
        let none = json!({"workspaceFolder": "/w", "pathMappings": none});
        assert_eq!(
            for_worker(&none, &breakpoint, None)["pathMappings"],
            json!([{"localRoot": "/w", "remoteRoot": "."}])
        );
    }
}

#[test]
fn the_workers_debugger_never_sees_the_relays_block() {
    let mine = json!({"rayRelay": {"token": "secret", "next": true}, "connect": {"host": "LocalHost", "port": "5678"}, "x": [null]});
    let sent = for_worker(&mine, &paused("square", 1), None);
    assert!(!sent.to_string().contains("secret"));
    assert_eq!(sent["connect"], mine["connect"]);
    assert_eq!(sent["x"], mine["x"]);
}

#[test]
fn the_dialled_address_is_read_in_every_form_clients_use() {
    let read = |value: Value| RelayEndpoint::read(&value, 5678);
    assert_eq!(
        read(json!({"connect": {"host": "h", "port": 1}})),
        RelayEndpoint {
            host: "h".into(),
            port: 1.into(),
            listen: None,
        }
    );
    assert_eq!(
        read(json!({"connect": {"port": "1"}})),
        RelayEndpoint {
            host: "127.0.0.1".into(),
            port: "1".into(),
            listen: None,
        }
    );
    assert_eq!(
        read(json!({"host": "h", "port": 2})),
        RelayEndpoint {
            host: "h".into(),
            port: 2.into(),
            listen: None,
        }
    );
    assert_eq!(
        read(json!({})),
        RelayEndpoint {
            host: "127.0.0.1".into(),
            port: 5678.into(),
            listen: None,
        }
    );
    assert_eq!(
        read(json!({"connect": null, "port": []})),
        RelayEndpoint {
            host: "127.0.0.1".into(),
            port: 5678.into(),
            listen: None,
        }
    );
}

#[test]
fn a_child_carries_the_parents_settings_its_own_name_and_its_breakpoint() {
    let breakpoint = paused("square", 1);
    let parent = json!({"name": "Ray", "type": "debugpy", "request": "attach", "justMyCode": true, "__sessionId": "s", "preLaunchTask": "t",
        "connect": {"host": "127.0.0.1", "port": 5678}, "rayRelay": {"all": true, "localRoot": "/src"}});
    let child = child_configuration(
        &parent,
        &breakpoint,
        &RelayEndpoint::read(&parent, 1),
        Pass::default(),
    );
    assert_eq!(child["name"], breakpoint.session_name());
    assert_eq!(child["connect"], parent["connect"]);
    assert_eq!(child["justMyCode"], true);
    assert_eq!(
        child["rayRelay"],
        json!({"breakpoint": breakpoint.id, "localRoot": "/src"})
    );
    assert!(child.get("__sessionId").is_none() && child.get("preLaunchTask").is_none());
    let neovim = json!({"host": "127.0.0.1", "port": 5678});
    let child = child_configuration(
        &neovim,
        &breakpoint,
        &RelayEndpoint::read(&neovim, 1),
        Pass::default(),
    );
    assert_eq!(
        (&child["host"], &child["port"]),
        (&neovim["host"], &neovim["port"])
    );
    assert!(child.get("connect").is_none());
}

/// VS Code starts a program for `listen` alone; with `connect` it would dial.
#[test]
fn a_client_that_starts_a_program_starts_it_for_its_children_too() {
    let breakpoint = paused("square", 1);
    let listen = json!({"port": 5678});
    for beside in [
        json!({}),
        json!({"connect": {"port": 5678}}),
        json!({"host": "h", "port": 2}),
    ] {
        let mut parent = beside;
        parent["rayRelay"] = json!({"all": true, "listen": listen});
        let dialled = RelayEndpoint::read(&parent, 1);
        let child = child_configuration(&parent, &breakpoint, &dialled, Pass::default());
        assert_eq!(child["listen"], listen);
        assert_eq!(child["rayRelay"], json!({"breakpoint": breakpoint.id}));
        for key in ["connect", "host", "port"] {
            assert!(child.get(key).is_none(), "{child}");
        }
    }
}

#[test]
fn a_wrong_folder_can_be_told_by_one_line() {
    let mut breakpoint = paused("square", 1);
    let note = |arguments: Value, breakpoint: &Breakpoint, root: Option<&str>| {
        source_note(&for_worker(&arguments, breakpoint, root), breakpoint)
    };
    let open = json!({"workspaceFolder": "/home/ada/other"});
    assert_eq!(note(open.clone(), &breakpoint, None), None);
    let said = note(open.clone(), &breakpoint, Some("/home/ada/job")).unwrap();
    assert!(
        said.starts_with("/home/ada/job stands for the job's working_dir"),
        "{said}"
    );
    breakpoint.names.unpacked_working_dir = true;
    let said = note(open, &breakpoint, None).unwrap();
    assert!(
        said.starts_with("/home/ada/other stands for") && said.contains("rayRelay.localRoot"),
        "{said}"
    );
    let said = note(json!({}), &breakpoint, None).unwrap();
    assert!(said.starts_with("no local folder stands for"), "{said}");
    let own = json!({"pathMappings": [{"localRoot": "/a", "remoteRoot": "/b"}]});
    assert_eq!(note(own, &breakpoint, None), None);
}
