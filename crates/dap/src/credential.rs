//! The credential in attach arguments: removed before anything else is read.
//!
//! Pure. The remaining arguments can be logged, sent to a worker and given to child sessions.

use serde_json::Value;

use ray_relay_access::identity::Secret;
use ray_relay_base::wire::json::typed_at;
use ray_relay_session::session::authenticate::PresentedCredential;
use ray_relay_session::session::refusal::SessionRefusal;

/// `rayRelay` at the top level of the arguments.
const BLOCK: &str = "rayRelay";

/// The same as `rayRelay.token`, for clients with string-only configuration (Helix), where `rayRelay` is a breakpoint
/// id or a task name. A token is accepted there as well.
const TOKEN: &str = "rayRelayToken";

/// Depth to which copies of the relay's own keys are searched.
const MAX_DEPTH: usize = 64;

/// Removes the credential from `arguments`, and every other copy of the keys that could hold it.
///
/// # Errors
/// [`SessionRefusal::BadSelector`]: not a string, or more than one.
pub(super) fn take(arguments: &mut Value) -> Result<PresentedCredential, SessionRefusal> {
    let mut found = Vec::new();
    if let Some(keys) = arguments.as_object_mut() {
        found.push(("rayRelayToken", keys.shift_remove(TOKEN)));
    }
    // A client with string-only configuration, and a token instead of a task name.
    if typed_at::<Option<&str>>(arguments, BLOCK).is_some_and(is_token) {
        let keys = arguments.as_object_mut();
        found.push(("rayRelay", keys.and_then(|keys| keys.shift_remove(BLOCK))));
    }
    if let Some(block) = arguments.get_mut(BLOCK).and_then(Value::as_object_mut) {
        found.push(("rayRelay.token", block.shift_remove("token")));
        found.push(("rayRelay.ticket", block.shift_remove("ticket")));
    }
    if let Some(keys) = arguments.as_object_mut() {
        keys.values_mut().for_each(|value| strip(value, MAX_DEPTH));
    }
    let mut presented = PresentedCredential::Nothing;
    for (key, value) in found {
        let secret = match value {
            None | Some(Value::Null) => continue,
            // The value of an unset variable in an editor.
            Some(Value::String(text)) if text.trim().is_empty() => continue,
            Some(Value::String(text)) => Secret::new(text),
            Some(_) => {
                return Err(SessionRefusal::BadSelector(format!(
                    "`{key}` must be a string"
                )));
            }
        };
        if !matches!(presented, PresentedCredential::Nothing) {
            return Err(SessionRefusal::BadSelector(
                "give one of `rayRelay.token`, `rayRelayToken` and `rayRelay.ticket`, not several"
                    .into(),
            ));
        }
        presented = match key {
            "rayRelay.ticket" => PresentedCredential::Ticket(secret),
            _ => PresentedCredential::Token(secret),
        };
    }
    Ok(presented)
}

/// Whether `text` looks like a JSON web token in compact form: three parts of base64, the first a JSON object.
fn is_token(text: &str) -> bool {
    text.starts_with("eyJ") && text.split('.').count() == 3 && !text.contains(char::is_whitespace)
}

/// Removes the keys that could hold a credential from `value`; below `depth` everything goes.
pub(super) fn strip(value: &mut Value, depth: usize) {
    match value {
        Value::Object(_) | Value::Array(_) if depth == 0 => *value = Value::Null,
        Value::Object(keys) => {
            keys.shift_remove(BLOCK);
            keys.shift_remove(TOKEN);
            keys.values_mut().for_each(|value| strip(value, depth - 1));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| strip(value, depth - 1)),
        _ => {}
    }
}

/// [`strip`] for a whole message.
pub(super) fn strip_all(message: &mut Value) {
    strip(message, MAX_DEPTH);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credential_is_removed_from_every_place_in_attach() {
        let mut arguments = json!({
            "rayRelay": {"token": "s3cret", "next": true},
            "connect": {"host": "h", "rayRelay": {"token": "s3cret"}, "rayRelayToken": "s3cret"},
            "list": [[{"rayRelay": "s3cret"}]],
        });
        let presented = take(&mut arguments).unwrap();
        assert!(matches!(&presented, PresentedCredential::Token(t) if t.expose() == "s3cret"));
        assert!(!format!("{presented:?}").contains("s3cret"));
        assert_eq!(
            arguments,
            json!({"rayRelay": {"next": true}, "connect": {"host": "h"}, "list": [[{}]]})
        );
        let mut helix = json!({"rayRelay": "square", "rayRelayToken": "s3cret"});
        let presented = take(&mut helix).unwrap();
        assert!(matches!(presented, PresentedCredential::Token(t) if t.expose() == "s3cret"));
        assert_eq!(helix, json!({"rayRelay": "square"}));
        let mut alone = json!({"rayRelay": "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhbm4ifQ.c2ln"});
        let presented = take(&mut alone).unwrap();
        assert!(
            matches!(presented, PresentedCredential::Token(t) if t.expose().starts_with("eyJ"))
        );
        assert_eq!(alone, json!({}));
    }

    #[test]
    fn ticket_is_removed_and_its_block_remains() {
        let mut arguments = json!({"rayRelay": {"breakpoint": "3kfz0q8m", "ticket": "s3cret"}});
        let presented = take(&mut arguments).unwrap();
        assert!(matches!(presented, PresentedCredential::Ticket(t) if t.expose() == "s3cret"));
        assert_eq!(arguments, json!({"rayRelay": {"breakpoint": "3kfz0q8m"}}));
    }

    proptest::proptest! {
        #[test]
        fn nested_credentials_are_removed_at_any_depth(
            path in proptest::collection::vec("[a-c]|rayRelay|rayRelayToken|connect|token|ticket", 0..9),
            key in "rayRelay|rayRelayToken",
            list in proptest::bool::ANY,
        ) {
            let mut value = json!({(&*key): {"token": "s3cret", "ticket": ["s3cret"]}});
            for step in path.iter().rev() {
                let inner = if list { json!([value]) } else { value };
                value = json!({(&**step): inner});
            }
            let mut arguments = json!({"connect": value, "rayRelay": {"token": value}});
            let _ = take(&mut arguments);
            proptest::prop_assert!(!arguments.to_string().contains("s3cret"), "{}", arguments);
        }
    }

    #[test]
    fn empty_token_is_none_and_two_credentials_are_refused() {
        for arguments in [
            json!({}),
            json!(null),
            json!({"rayRelay": {"token": "", "ticket": null}}),
        ] {
            let presented = take(&mut arguments.clone()).unwrap();
            assert!(
                matches!(presented, PresentedCredential::Nothing),
                "{arguments}"
            );
        }
        for arguments in [
            json!({"rayRelay": {"token": "a", "ticket": "b"}}),
            json!({"rayRelay": {"token": "a"}, "rayRelayToken": "a"}),
            json!({"rayRelay": {"token": 7}}),
        ] {
            assert!(take(&mut arguments.clone()).is_err(), "{arguments}");
        }
    }
}
