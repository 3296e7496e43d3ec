//! Path mappings, which debugpy keeps for the whole process and not for a session.
//!
//! Pure. An attach without mappings, or with an empty list, leaves those of the client before (seen with 1.8.0,
//! 1.8.14 and 1.8.22, `pydevd_file_utils.setup_client_server_paths`): the next person would see `/home/ann/…`, or what
//! a client wanted them to take for the file that runs. So every attach says which mappings hold, and a session that had
//! some takes them along when it ends ([`forgetting`]): not everybody who comes next comes through the relay.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

const KEY: &str = "pathMappings";

/// A folder that there is not.
const NOWHERE: &str = "/.ray-relay/nowhere";

static NONE: LazyLock<Value> = LazyLock::new(|| json!([{"localRoot": "/", "remoteRoot": "/"}]));

/// Every path stands for itself. Not an empty list, which debugpy takes for nothing said.
pub fn none() -> Value {
    NONE.clone()
}

/// No path of the worker's is one of the client's.
pub fn nowhere() -> Value {
    json!([{"localRoot": NOWHERE, "remoteRoot": NOWHERE}])
}

/// Arguments of an `evaluate` that makes the process forget all mappings. DAP has no request for that, and an attach is
/// not repeated. It is answered in 50 ms, also while every thread runs or stands (1.8.0, 1.8.14 and 1.8.22), because
/// nothing of it runs in a thread of the program's.
pub fn forgetting() -> Value {
    json!({"expression": "__import__('pydevd_file_utils').setup_client_server_paths([])"})
}

/// Which of the worker's files a client has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFiles {
    /// Those of the folder that the process is in, in this one of its own; `""`: none.
    Below(Arc<str>),
    /// Not these, by the paths at which it was told that it has them.
    Without(Arc<[String]>),
}

impl ClientFiles {
    /// Arguments of an `evaluate` that makes the process know it.
    pub fn setting(&self) -> Value {
        match self {
            Self::Below(local) => below(local),
            Self::Without(paths) => without(paths),
        }
    }
}

/// What `ray-relay` on the client's machine has the relay evaluate where files are missing there.
pub const MISSING: &str = "ray-relay missing";

/// The expression that names `paths` as missing.
pub fn missing(paths: &[String]) -> String {
    format!("{MISSING} {}", Value::from(paths))
}

/// The process serves these files by reference, as those that no mapping is for: only a mapping gives a client's path the
/// reference 0. Breakpoints are still found by the path. Mappings that are set anew forget it.
fn without(paths: &[String]) -> Value {
    let paths = Value::from(paths);
    json!({"expression": format!(
        "[(u._client_filename_in_utf8_to_source_reference.update({{c: r}}), u._source_reference_to_server_filename.update({{r: u.map_file_to_server(c)}})) \
         for u in [__import__('pydevd_file_utils')] for c in {paths} for r in [u._next_source_reference()]]"
    )})
}

/// The client's folder `local` stands for the one that the process is in, as the root `.` of an attach does, and no other for any;
/// `""`: none does. Files of which a client was told before are told anew.
fn below(local: &str) -> Value {
    let pair = match local {
        "" => {
            let nowhere = Value::from(NOWHERE);
            format!("({nowhere}, {nowhere})")
        }
        // A string of JSON's says the same in Python.
        local => format!("({}, __import__('os').getcwd())", Value::from(local)),
    };
    json!({"expression": format!("__import__('pydevd_file_utils').setup_client_server_paths([{pair}])")})
}

/// Whether `arguments` map a path to another one.
pub fn given(arguments: &Map<String, Value>) -> bool {
    usable(arguments).iter().any(|one| NONE[0] != *one)
}

/// Makes `arguments` say which mappings hold, and in which way their client writes paths, which debugpy keeps as well.
/// What it would stumble over is left out.
pub fn settle(arguments: &mut Map<String, Value>) {
    let mappings = match given(arguments) {
        true => usable(arguments).into(),
        false => none(),
    };
    arguments.insert(KEY.into(), mappings);
    let told = |option: &Value| option == "WindowsClient" || option == "UnixClient";
    let by_option = arguments
        .get("debugOptions")
        .and_then(Value::as_array)
        .is_some_and(|options| options.iter().any(told));
    if !by_option && !arguments.get("clientOS").is_some_and(Value::is_string) {
        arguments.insert("clientOS".into(), "unix".into());
    }
}

/// Mappings with two folders; of any other debugpy makes nothing, or fails to attach.
fn usable(arguments: &Map<String, Value>) -> Vec<Value> {
    let folder = |one: &Value, key: &str| {
        let folder = one.get(key)?.as_str()?;
        (!folder.is_empty()).then(|| folder.to_owned())
    };
    let pair = |one: &Value| {
        let (local, remote) = (folder(one, "localRoot")?, folder(one, "remoteRoot")?);
        Some(json!({"localRoot": local, "remoteRoot": remote}))
    };
    let given = arguments.get(KEY).and_then(Value::as_array);
    given.into_iter().flatten().filter_map(pair).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settled(arguments: Value) -> Value {
        let Value::Object(mut arguments) = arguments else {
            panic!("{arguments}");
        };
        settle(&mut arguments);
        Value::Object(arguments)
    }

    #[test]
    fn what_debugpy_would_take_for_nothing_said_says_that_paths_stand_for_themselves() {
        for nothing in [
            json!({}),
            json!({"pathMappings": null}),
            json!({"pathMappings": []}),
            json!({"pathMappings": "/a"}),
            json!({"pathMappings": ["/a", null, {}, {"localRoot": "/a"}, {"localRoot": "/a", "remoteRoot": ""}]}),
            json!({"pathMappings": [{"localRoot": ["/a"], "remoteRoot": "/b"}]}),
        ] {
            assert_eq!(
                settled(nothing.clone())["pathMappings"],
                none(),
                "{nothing}"
            );
        }
        let mine = json!({"pathMappings": [{"localRoot": "/a", "remoteRoot": "."}, 7]});
        assert_eq!(
            settled(mine)["pathMappings"],
            json!([{"localRoot": "/a", "remoteRoot": "."}])
        );
    }

    #[test]
    fn a_folder_is_a_string_and_nothing_else_of_the_expression() {
        let expression = |local: &str| below(local)["expression"].take();
        assert_eq!(
            expression("/home/ada/\"job\"\n\\"),
            r#"__import__('pydevd_file_utils').setup_client_server_paths([("/home/ada/\"job\"\n\\", __import__('os').getcwd())])"#
        );
        assert_eq!(
            expression(""),
            r#"__import__('pydevd_file_utils').setup_client_server_paths([("/.ray-relay/nowhere", "/.ray-relay/nowhere")])"#
        );
    }

    #[test]
    fn how_a_client_writes_paths_is_said_where_it_does_not_say_so_itself() {
        assert_eq!(settled(json!({}))["clientOS"], "unix");
        assert_eq!(settled(json!({"clientOS": null}))["clientOS"], "unix");
        assert_eq!(
            settled(json!({"clientOS": "windows"}))["clientOS"],
            "windows"
        );
        let by_option = settled(json!({"debugOptions": ["WindowsClient"]}));
        assert_eq!(by_option.get("clientOS"), None);
    }

    proptest! {
        #[test]
        fn every_attach_says_which_mappings_hold(
            local in "(|/|/a|.)", remote in "(|/|/b|.)", broken in any::<bool>(), more in 0usize..3,
        ) {
            let one = if broken { json!([local]) } else { json!({"localRoot": local, "remoteRoot": remote}) };
            let settled = settled(json!({"pathMappings": vec![one; more]}));
            let mappings = settled["pathMappings"].as_array().unwrap();
            prop_assert!(!mappings.is_empty());
            for one in mappings {
                for key in ["localRoot", "remoteRoot"] {
                    prop_assert!(one[key].as_str().is_some_and(|folder| !folder.is_empty()), "{}", settled);
                }
            }
        }
    }
}
