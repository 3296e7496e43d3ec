#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use ray_relay_ray::ray::testing::paused;

#[test]
fn ray_breakpoint_survives_just_my_code() {
    let breakpoint = paused("square", 1);
    for arguments in [
        json!({}),
        json!({"justMyCode": true}),
        json!({"justMyCode": null}),
    ] {
        let sent = for_worker(&arguments, &breakpoint, None);
        let helper = json!([{"path": RAY_HELPER, "include": true}]);
        assert_eq!(sent["rules"], helper, "{arguments}");
        // The user's setting is not touched.
        assert_eq!(sent.get("justMyCode"), arguments.get("justMyCode"));
    }
    let rules = json!({"justMyCode": true, "rules": [{"path": "**/mine/**", "include": false}]});
    let sent = for_worker(&rules, &breakpoint, None);
    assert_eq!(
        sent["rules"],
        json!([{"path": RAY_HELPER, "include": true}, {"path": "**/mine/**", "include": false}])
    );
    let sent = for_worker(&json!({"justMyCode": false}), &breakpoint, None);
    assert_eq!(sent.get("rules"), None);
}

#[test]
fn working_dir_is_mapped_unless_the_client_maps_paths() {
    let mapped = |arguments: &Value, unpacked: bool, root: Option<&str>| {
        let mut breakpoint = paused("square", 1);
        breakpoint.names_mut().unpacked_working_dir = unpacked;
        for_worker(arguments, &breakpoint, root)["pathMappings"].take()
    };
    let mapping_from = |root: &str| json!([{"localRoot": root, "remoteRoot": "."}]);
    let arguments = json!({"workspaceFolder": "/home/me/project"});
    // debugpy keeps the mappings of the previous client.
    assert_eq!(mapped(&json!({}), false, None), mappings::none());
    assert_eq!(
        mapped(&arguments, false, Some("/src")),
        mapping_from("/src")
    );
    assert_eq!(
        mapped(&arguments, true, None),
        mapping_from("/home/me/project")
    );
    let with_mappings =
        json!({"workspaceFolder": "/w", "pathMappings": [{"localRoot": "/a", "remoteRoot": "/b"}]});
    assert_eq!(
        mapped(&with_mappings, true, Some("/src")),
        with_mappings["pathMappings"]
    );
    // A subprocess inherits the mappings of its parent's session.
    for empty in [json!([]), mappings::none()] {
        let inherited = json!({"workspaceFolder": "/w", "pathMappings": empty});
        assert_eq!(mapped(&inherited, true, None), mapping_from("/w"));
    }
}

#[test]
fn files_missing_at_the_client_are_not_mapped() {
    let mapped = |arguments: &Value, unpacked: bool, root: Option<&str>| {
        let mut breakpoint = paused("square", 1);
        breakpoint.names_mut().unpacked_working_dir = unpacked;
        for_worker(arguments, &breakpoint, root)["pathMappings"].take()
    };
    // Files at the same path are read from the open folder, all others from the worker.
    let arguments = json!({"workspaceFolder": "/home/me/other"});
    let same_path = json!([{"localRoot": "/home/me/other", "remoteRoot": "/home/me/other"}]);
    assert_eq!(mapped(&arguments, false, None), same_path);
    // Without a mapping, Ray's own working_dir exists at no client.
    assert_eq!(mapped(&json!({}), true, None), mappings::nowhere());
    assert_eq!(mapped(&arguments, true, Some("")), mappings::nowhere());
    let inherited = json!({"pathMappings": mappings::none()});
    assert_eq!(mapped(&inherited, true, None), mappings::none());
}

#[test]
fn relay_block_is_not_sent_to_the_worker() {
    let arguments = json!({"rayRelay": {"token": "secret", "next": true}, "rayRelayToken": "secret",
        "connect": {"host": "LocalHost", "port": "5678"}, "x": [null]});
    let sent = for_worker(&arguments, &paused("square", 1), None);
    assert!(!sent.to_string().contains("secret"));
    assert_eq!(sent["connect"], arguments["connect"]);
    assert_eq!(sent["x"], arguments["x"]);
}

#[test]
fn relay_endpoint_is_read_in_every_client_form() {
    for (arguments, host, port) in [
        (json!({"connect": {"host": "h", "port": 1}}), "h", json!(1)),
        (json!({"connect": {"port": "1"}}), "127.0.0.1", json!("1")),
        (json!({"host": "h", "port": 2}), "h", json!(2)),
        (json!({}), "127.0.0.1", json!(5678)),
        (
            json!({"connect": null, "port": []}),
            "127.0.0.1",
            json!(5678),
        ),
    ] {
        let expected = RelayEndpoint {
            host: host.into(),
            port,
            listen: None,
        };
        assert_eq!(RelayEndpoint::read(&arguments, 5678), expected);
    }
}

fn child_of(parent: &Value, breakpoint: &Breakpoint) -> Value {
    let dialled = RelayEndpoint::read(parent, 1);
    child_configuration(parent, breakpoint, &dialled, Pass::default())
}

#[test]
fn child_inherits_settings_and_gets_its_own_name() {
    let breakpoint = paused("square", 1);
    let parent = json!({"name": "Ray", "type": "debugpy", "request": "attach", "justMyCode": true, "__sessionId": "s", "preLaunchTask": "t",
        "connect": {"host": "127.0.0.1", "port": 5678}, "rayRelay": {"all": true, "localRoot": "/src"}});
    let child = child_of(&parent, &breakpoint);
    assert_eq!(child["name"], breakpoint.session_name());
    assert_eq!(child["connect"], parent["connect"]);
    assert_eq!(child["justMyCode"], true);
    let relay = json!({"breakpoint": breakpoint.id, "localRoot": "/src"});
    assert_eq!(child["rayRelay"], relay);
    assert!(child.get("__sessionId").is_none() && child.get("preLaunchTask").is_none());
    let neovim = json!({"host": "127.0.0.1", "port": 5678});
    let child = child_of(&neovim, &breakpoint);
    assert_eq!(child["host"], neovim["host"]);
    assert_eq!(child["port"], neovim["port"]);
    assert!(child.get("connect").is_none());
}

#[test]
fn child_configuration_has_no_credential_of_its_parent() {
    for parent in [
        json!({"rayRelay": "square", "rayRelayToken": "secret"}),
        json!({"rayRelay": {"all": true, "token": "secret", "ticket": "secret"}}),
    ] {
        let child = child_of(&parent, &paused("square", 1));
        assert!(!child.to_string().contains("secret"), "{child}");
    }
}

/// VS Code starts a program for `listen` alone; with `connect` it would dial.
#[test]
fn listening_client_opens_children_by_listen_too() {
    let breakpoint = paused("square", 1);
    let listen = json!({"port": 5678});
    for endpoint in [
        json!({}),
        json!({"connect": {"port": 5678}}),
        json!({"host": "h", "port": 2}),
    ] {
        let mut parent = endpoint;
        parent["rayRelay"] = json!({"all": true, "listen": listen});
        let child = child_of(&parent, &breakpoint);
        assert_eq!(child["listen"], listen);
        assert_eq!(child["rayRelay"], json!({"breakpoint": breakpoint.id}));
        for key in ["connect", "host", "port"] {
            assert!(child.get(key).is_none(), "{child}");
        }
    }
}

#[test]
fn wrong_source_folder_is_reported_in_one_line() {
    let mut breakpoint = paused("square", 1);
    let note_for = |arguments: Value, breakpoint: &Breakpoint, root: Option<&str>| {
        source_note(&for_worker(&arguments, breakpoint, root), breakpoint)
    };
    let arguments = json!({"workspaceFolder": "/home/ada/other"});
    assert_eq!(note_for(arguments.clone(), &breakpoint, None), None);
    let note = note_for(arguments.clone(), &breakpoint, Some("/home/ada/job")).unwrap();
    let job = "/home/ada/job stands for the job's working_dir";
    assert!(note.starts_with(job), "{note}");
    breakpoint.names_mut().unpacked_working_dir = true;
    let note = note_for(arguments, &breakpoint, None).unwrap();
    assert!(
        note.starts_with("/home/ada/other stands for")
            && note.contains("type `ray-relay localRoot \"\"` here"),
        "{note}"
    );
    for arguments in [json!({}), json!({"workspaceFolder": "/home/ada/other"})] {
        let note = note_for(arguments, &breakpoint, Some("")).unwrap();
        assert!(note.contains("are shown as the worker has them"), "{note}");
        assert!(!note.contains("not found"), "{note}");
    }
    let unmapped = json!({"pathMappings": []});
    let note = note_for(unmapped, &breakpoint, None).unwrap();
    assert!(note.starts_with("no local folder stands for"), "{note}");
    assert!(note.contains("where a file is not found"), "{note}");
    let with_mappings = json!({"pathMappings": [{"localRoot": "/a", "remoteRoot": "/b"}]});
    assert_eq!(note_for(with_mappings, &breakpoint, None), None);
}
