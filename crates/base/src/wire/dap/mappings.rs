//! Path mappings, which debugpy stores for the whole process and not for a session.
//!
//! Pure. An attach without mappings, or with an empty list, leaves the previous client's (seen with 1.8.0, 1.8.14 and
//! 1.8.22, `pydevd_file_utils.setup_client_server_paths`). The next user would see `/home/ann/…`, or a file that the
//! previous client chose to pass off as the running one. So every attach sets the mappings, and a session that had
//! some removes them at its end ([`forgetting`]): the next client may not come through the relay.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

const KEY: &str = "pathMappings";

/// A folder that does not exist.
const MISSING_FOLDER: &str = "/.ray-relay/nowhere";

static IDENTITY_MAPPING: LazyLock<Value> =
    LazyLock::new(|| json!([{"localRoot": "/", "remoteRoot": "/"}]));

/// Maps every path to itself. An empty list would not do: debugpy takes it for no mappings given.
pub fn none() -> Value {
    IDENTITY_MAPPING.clone()
}

/// Maps no path of the worker to one of the client.
pub fn nowhere() -> Value {
    json!([{"localRoot": MISSING_FOLDER, "remoteRoot": MISSING_FOLDER}])
}

/// Arguments of an `evaluate` that makes the process forget all mappings. DAP has no request for that, and an attach
/// cannot be repeated. It is answered within 50 ms, whether threads run or are paused (1.8.0, 1.8.14 and 1.8.22),
/// because it does not run in a thread of the program.
pub fn forgetting() -> Value {
    json!({"expression": "__import__('pydevd_file_utils').setup_client_server_paths([])"})
}

/// The worker's files that a client has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFiles {
    /// The files below the process's working directory, in this folder of the client; `""`: none.
    Below(Arc<str>),
    /// All but these, given by the paths at which the client was assumed to have them.
    Without(Arc<[String]>),
}

impl ClientFiles {
    /// Arguments of an `evaluate` that sets it in the process.
    pub fn setting(&self) -> Value {
        match self {
            Self::Below(local) => below(local),
            Self::Without(paths) => without(paths),
        }
    }
}

/// The expression by which `ray-relay` on the client's machine reports missing files to the relay.
pub const MISSING: &str = "ray-relay missing";

/// The expression that names `paths` as missing.
pub fn missing(paths: &[String]) -> String {
    format!("{MISSING} {}", Value::from(paths))
}

/// Makes the process serve these files by reference, like files without a mapping: only a mapping gives a client's
/// path the reference 0. Breakpoints are still found by path. New mappings discard this.
fn without(paths: &[String]) -> Value {
    let paths = Value::from(paths);
    json!({"expression": format!(
        "[(u._client_filename_in_utf8_to_source_reference.update({{c: r}}), u._source_reference_to_server_filename.update({{r: u.map_file_to_server(c)}})) \
         for u in [__import__('pydevd_file_utils')] for c in {paths} for r in [u._next_source_reference()]]"
    )})
}

/// Maps the client's folder `local` to the process's working directory, like the root `.` of an attach, and nothing
/// else; `""`: nothing. Files announced to the client before are announced again.
fn below(local: &str) -> Value {
    let pair = match local {
        "" => {
            let nowhere = Value::from(MISSING_FOLDER);
            format!("({nowhere}, {nowhere})")
        }
        // A JSON string is a Python literal too.
        local => format!("({}, __import__('os').getcwd())", Value::from(local)),
    };
    json!({"expression": format!("__import__('pydevd_file_utils').setup_client_server_paths([{pair}])")})
}

/// Whether `arguments` map a path to a different one.
pub fn has_mappings(arguments: &Map<String, Value>) -> bool {
    usable(arguments)
        .iter()
        .any(|one| IDENTITY_MAPPING[0] != *one)
}

/// Makes `arguments` set the mappings and the client's path style, which debugpy stores as well. Invalid mappings are
/// left out.
pub fn settle(arguments: &mut Map<String, Value>) {
    let mappings = match has_mappings(arguments) {
        true => usable(arguments).into(),
        false => none(),
    };
    arguments.insert(KEY.into(), mappings);
    let sets_style = |option: &Value| option == "WindowsClient" || option == "UnixClient";
    let by_option = arguments
        .get("debugOptions")
        .and_then(Value::as_array)
        .is_some_and(|options| options.iter().any(sets_style));
    if !by_option && !arguments.get("clientOS").is_some_and(Value::is_string) {
        arguments.insert("clientOS".into(), "unix".into());
    }
}

/// The mappings of `arguments` that have two folders; debugpy ignores any other, or fails to attach.
pub fn usable(arguments: &Map<String, Value>) -> Vec<Value> {
    let folder = |one: &Value, key: &str| {
        let folder = one.get(key)?.as_str()?;
        (!folder.is_empty()).then(|| folder.to_owned())
    };
    let pair = |one: &Value| {
        let (local, remote) = (folder(one, "localRoot")?, folder(one, "remoteRoot")?);
        Some(json!({"localRoot": local, "remoteRoot": remote}))
    };
    let mappings = arguments.get(KEY).and_then(Value::as_array);
    mappings.into_iter().flatten().filter_map(pair).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settle_arguments(arguments: Value) -> Value {
        let Value::Object(mut arguments) = arguments else {
            panic!("{arguments}");
        };
        settle(&mut arguments);
        Value::Object(arguments)
    }

    #[test]
    fn missing_mappings_become_identity_mappings() {
        for missing in [
            json!({}),
            json!({"pathMappings": null}),
            json!({"pathMappings": []}),
            json!({"pathMappings": "/a"}),
            json!({"pathMappings": ["/a", null, {}, {"localRoot": "/a"}, {"localRoot": "/a", "remoteRoot": ""}]}),
            json!({"pathMappings": [{"localRoot": ["/a"], "remoteRoot": "/b"}]}),
        ] {
            assert_eq!(
                settle_arguments(missing.clone())["pathMappings"],
                none(),
                "{missing}"
            );
        }
        let own_mapping = json!({"pathMappings": [{"localRoot": "/a", "remoteRoot": "."}, 7]});
        assert_eq!(
            settle_arguments(own_mapping)["pathMappings"],
            json!([{"localRoot": "/a", "remoteRoot": "."}])
        );
    }

    #[test]
    fn folder_is_quoted_in_the_expression() {
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
    fn client_os_defaults_to_unix() {
        assert_eq!(settle_arguments(json!({}))["clientOS"], "unix");
        assert_eq!(
            settle_arguments(json!({"clientOS": null}))["clientOS"],
            "unix"
        );
        assert_eq!(
            settle_arguments(json!({"clientOS": "windows"}))["clientOS"],
            "windows"
        );
        let by_option = settle_arguments(json!({"debugOptions": ["WindowsClient"]}));
        assert_eq!(by_option.get("clientOS"), None);
    }

    proptest! {
        #[test]
        fn every_attach_gets_explicit_mappings(
            local in "(|/|/a|.)", remote in "(|/|/b|.)", broken in any::<bool>(), more in 0usize..3,
        ) {
            let one = if broken { json!([local]) } else { json!({"localRoot": local, "remoteRoot": remote}) };
            let settled = settle_arguments(json!({"pathMappings": vec![one; more]}));
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
