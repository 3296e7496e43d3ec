//! What is hidden, what is not, and that a message stays a message.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Value, json};

mod planted;

use super::testing::json_of;
use super::*;
use crate::dap::messages::{OfWorker, Request};
use crate::wire::dap::peek::MessageType;

/// The built-in ones; compiled once, because that takes longer than most tests.
fn rules() -> Arc<Masking> {
    static RULES: LazyLock<Arc<Masking>> = LazyLock::new(|| Arc::new(Masking::new(&enabled())));
    RULES.clone()
}

fn enabled() -> config::Masking {
    config::Masking {
        enabled: true,
        ..config::Masking::default()
    }
}

fn masked(text: &str) -> String {
    rules().text(text).into_owned()
}

fn session() -> MaskedSession {
    MaskedSession::new(rules())
}

/// Masks `message` as a session does: with what the table says that the message carries.
fn mask(session: &mut MaskedSession, message: &mut Value) {
    let carries = OfWorker::of_message(message).carries;
    session.on_worker(message, carries);
}

fn asked(session: &mut MaskedSession, message: &Value, view_only: bool) -> Option<Value> {
    let carries = Request::of_message(message).carries;
    session.on_client(message, carries, view_only)
}

fn captures_from_worker(kind: MessageType, name: &[u8]) -> bool {
    OfWorker::of(kind, name).carries != Carries::Nothing
}

#[test]
fn it_holds_for_whoever_may_only_look_and_for_others_where_it_is_turned_on() {
    let rights = |scopes: &str, unmasked: bool| Rights {
        scopes: scopes.parse().unwrap(),
        obligations: crate::policy::SessionObligations {
            unmasked,
            ..Default::default()
        },
    };
    let off = Masking::new(&config::Masking::default());
    for (who, on_by_default, on_where_enabled) in [
        (rights("view", false), true, true),
        (rights("list,view,terminal", false), true, true),
        (rights("debug", false), false, true),
        (rights("view", true), false, false),
        (rights("debug", true), false, false),
    ] {
        assert_eq!(off.holds_for(&who), on_by_default, "{who:?}");
        assert_eq!(rules().holds_for(&who), on_where_enabled, "{who:?}");
        assert!(!off.holds_at_prompt(&who));
    }
}

#[test]
fn environment_variables_that_look_secret_are_hidden_in_every_form() {
    for name in [
        "RAY_AUTH_TOKEN",
        "RAY_AUTH_TOKEN_PATH",
        "OPENAI_KEY",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_PAT",
        "SMTP_PASS",
        "SENTRY_DSN",
        "SLACK_WEBHOOK_URL",
        "MYSQL_PWD",
    ] {
        for text in [
            format!("environ({{'{name}': 'abc-123', 'HOME': '/root'}})"),
            format!("{{b'{name}': b'abc-123', b'HOME': b'/root'}}"),
            format!("[('{name}', 'abc-123'), ('HOME', '/root')]"),
            format!("{name}=abc-123"),
        ] {
            let masked = masked(&text);
            assert!(!masked.contains("abc"), "{masked}");
            assert_eq!(masked.contains("/root"), text.contains("/root"), "{masked}");
        }
    }
    for text in [
        "sort_key='a'",
        "{'cache_key': 7}",
        "KEY = 3",
        "RNG_KEYS_PER_STEP=4",
    ] {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn names_are_found_in_every_form_in_which_values_are_printed() {
    for (text, left) in [
        (
            "{'password': 'hunter2', 'user': 'ada'}",
            "{'password': ‹masked›, 'user': 'ada'}",
        ),
        (
            r#"{"password":"hunter2","user":"ada"}"#,
            r#"{"password":‹masked›,"user":"ada"}"#,
        ),
        (
            r#"{"password":12345,"user":"ada"}"#,
            r#"{"password":‹masked›,"user":"ada"}"#,
        ),
        (
            "Config(user='ada', api_key=b'x\\'y, z', n=3)",
            "Config(user='ada', api_key=‹masked›, n=3)",
        ),
        (
            "[('password', 'hunter2'), ('n', 1)]",
            "[('password', ‹masked›), ('n', 1)]",
        ),
        (
            "os.environ['DB_PASSWORD'] = 'hunter2'",
            "os.environ['DB_PASSWORD'] = ‹masked›",
        ),
        (
            "'{\"password\": \"hun\\'ter2\", \"n\": 1}'",
            "'{\"password\": ‹masked›, \"n\": 1}'",
        ),
        (
            r#""{\"password\": \"hun\\\"ter2\", \"n\": 1}""#,
            r#""{\"password\": ‹masked›, \"n\": 1}""#,
        ),
        (
            "{'secrets': {'a': ['}', 'x'], 'b': 2}, 'n': 1}",
            "{'secrets': ‹masked›, 'n': 1}",
        ),
        ("{'password': 'hunt...r2'", "{'password': ‹masked›"),
        // Whatever names the key has are left out.
        ("{(...): 'x', 'n': [...]}", "{(...): ‹masked›, 'n': [...]}"),
        (
            "{'password': 'never closed, 'n': 1}",
            "{'password': ‹masked›}",
        ),
        (
            "'password':\n  'hunter2'\n  'more',",
            "'password':\n  ‹masked›,",
        ),
        (
            "login with password: correct horse\nnext",
            "login with password: ‹masked›\nnext",
        ),
        ("token=abc user=ada", "token=‹masked› user=ada"),
        (
            "Authorization: Basic YWRhOmh1bnRlcjI=\r\nHost: x",
            "Authorization: ‹masked›\r\nHost: x",
        ),
        ("X-Api-Key: 12 34", "X-Api-Key: ‹masked›"),
        ("accessToken='x'", "accessToken=‹masked›"),
        ("f(password='a' + 'b', n=1)", "f(password=‹masked›, n=1)"),
        ("password == 'hunter2'", "password == ‹masked›"),
        (
            "it failed: 'password=hunter2', try again",
            "it failed: 'password=‹masked›', try again",
        ),
        (
            "key=SecretStr('hunter2'), n=1",
            "key=SecretStr(‹masked›), n=1",
        ),
        (
            "pässword='x' größe=1 password='ü€'",
            "pässword='x' größe=1 password=‹masked›",
        ),
    ] {
        assert_eq!(masked(text), left);
    }
}

#[test]
fn what_only_resembles_a_name_is_shown() {
    for text in [
        "tokens=[1, 2], tokenizer=Fast(vocab=5), num_tokens: 7",
        "TokenKind::Plain",
        "{'user': 'ada', 'clerk_of': None}",
        "def login(password, token):",
        "passed=3",
    ] {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn secrets_are_known_by_their_looks() {
    for (text, left) in [
        ("'AKIAIOSFODNN7EXAMPLE'", "'‹masked›'"),
        (
            "x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln y",
            "x ‹masked› y",
        ),
        (
            "'eyJhbGciOiJIUzI1NiIsInR5cCI6Ikp...c2lnbmF0dXJl'",
            "'‹masked›'",
        ),
        (
            "postgres://ada:hunter2@db:5432/x",
            "postgres://ada:‹masked›@db:5432/x",
        ),
        ("'Bearer abcdefghijklmnop'", "'Bearer ‹masked›'"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter",
            "‹masked›\nafter",
        ),
        (
            r"'-----BEGIN PRIVATE KEY-----\nMIIE...', 'after'",
            "'‹masked›', 'after'",
        ),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "‹masked›"),
        (
            "card 4111 1111 1111 1111, 4111-1111-1111-1111; 4111111111111111",
            "card ‹masked›, ‹masked›; ‹masked›",
        ),
        ("2024 4111 1111 1111 1111", "2024 ‹masked›"),
        ("378282246310005", "‹masked›"),
    ] {
        assert_eq!(masked(text), left);
    }
    for text in [
        "4111 1111 1111 1112",
        "1732185600000000000",
        "ada@example.com",
        "sk-short",
        "https://example.com:8080/x@y",
    ] {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn further_rules_come_from_the_configuration() {
    let rules = Masking::new(&config::Masking {
        enabled: true,
        defaults: false,
        names: vec!["*_pin".into()],
        types: vec!["Vault*".into()],
        values: vec![r"CUST-(\d+)".into()],
        email: true,
        max_value: 64,
    });
    assert_eq!(
        rules.text("card_pin=1234, password=x, VaultItem(7), CUST-99, ada@example.com"),
        "card_pin=‹masked›, password=x, VaultItem(‹masked›), CUST-‹masked›, ‹masked›"
    );
}

#[test]
fn a_pattern_that_cannot_be_used_hides_everything() {
    let rules = Masking::new(&config::Masking {
        values: vec!["(".into()],
        ..enabled()
    });
    assert_eq!(rules.text("anything"), MASKED);
}

fn variables(list: Value) -> Value {
    let mut message = json!({"type": "response", "request_seq": 1, "success": true, "command": "variables", "body": {}});
    message["body"]["variables"] = list;
    message
}

#[test]
fn a_hidden_variable_cannot_be_opened_by_any_reference() {
    let mut session = session();
    let mut message = variables(json!([
        {"name": "password", "value": "{'a': 1}", "type": "dict", "evaluateName": "password", "variablesReference": 7, "namedVariables": 1},
        {"name": "'api-key'", "value": "'x'", "type": "str", "evaluateName": "d['api-key']", "variablesReference": 0},
        {"name": "key", "value": "<object>", "type": "SecretStr", "variablesReference": 8, "memoryReference": "0x1"},
        {"name": "cfg", "value": "{'password': 'x'}", "type": "dict", "evaluateName": "cfg", "variablesReference": 9},
        {"name": "user", "value": "'ada'", "type": "str", "evaluateName": "user", "variablesReference": 0},
    ]));
    mask(&mut session, &mut message);
    assert_eq!(
        message["body"]["variables"],
        json!([
            {"name": "password", "value": MASKED, "type": "dict", "variablesReference": 0},
            {"name": "'api-key'", "value": MASKED, "type": "str", "variablesReference": 0},
            {"name": "key", "value": MASKED, "type": "SecretStr", "variablesReference": 0},
            {"name": "cfg", "value": "{'password': ‹masked›}", "type": "dict", "variablesReference": 9},
            {"name": "user", "value": "'ada'", "type": "str", "evaluateName": "user", "variablesReference": 0},
        ])
    );
    let ask = |reference: u64| json!({"seq": 3, "type": "request", "command": "variables", "arguments": {"variablesReference": reference}});
    assert!(asked(&mut session, &ask(7), true).is_some());
    assert!(asked(&mut session, &ask(8), true).is_some());
    assert!(asked(&mut session, &ask(9), true).is_none());
}

#[test]
fn an_evaluated_value_is_hidden_by_the_names_in_its_expression() {
    let mut session = session();
    let ask = |seq: u64, expression: &str| json!({"seq": seq, "type": "request", "command": "evaluate", "arguments": {"expression": expression}});
    let answer = |seq: u64| json!({"type": "response", "request_seq": seq, "success": true, "command": "evaluate", "body": {"result": "'x'", "variablesReference": 0}});
    for (seq, expression, shown) in [
        (1, "user", true),
        (2, "cfg.password", false),
        (3, "cfg['password']", false),
    ] {
        assert!(asked(&mut session, &ask(seq, expression), false).is_none());
        let mut answer = answer(seq);
        mask(&mut session, &mut answer);
        assert_eq!(answer["body"]["result"] == "'x'", shown, "{expression}");
    }
    let mut unasked = answer(99);
    mask(&mut session, &mut unasked);
    assert_eq!(unasked["body"]["result"], MASKED);
}

#[test]
fn what_else_carries_values_is_looked_through() {
    let mut session = session();
    let mut masked = |mut message: Value| {
        mask(&mut session, &mut message);
        message.to_string()
    };
    for message in [
        json!({"type": "event", "event": "output", "body": {"category": "stdout", "output": "password=hunter2\n"}}),
        json!({"type": "event", "event": "stopped", "body": {"reason": "exception", "description": "bad password='hunter2'"}}),
        json!({"type": "event", "event": "notYetInvented", "body": {"deep": [{"text": "password: hunter2"}]}}),
        json!({"type": "response", "request_seq": 5, "success": false, "command": "evaluate", "message": "ValueError: password=hunter2",
            "body": {"error": {"format": "password=hunter2"}}}),
        json!({"type": "response", "request_seq": 5, "success": false, "command": "scopes", "message": "password=hunter2"}),
        json!({"type": "response", "request_seq": 6, "success": true, "command": "exceptionInfo", "body": {"exceptionId": "ValueError",
            "description": "password=hunter2", "details": {"message": "password=hunter2", "stackTrace": "  login(password='hunter2')\n",
            "innerException": [{"message": "password=hunter2"}]}}}),
        json!({"type": "response", "request_seq": 7, "success": true, "command": "setVariable", "body": {"value": "{'password': 'hunter2'}"}}),
    ] {
        let masked = masked(message);
        assert!(
            masked.contains(MASKED) && !masked.contains("hunter2"),
            "{masked}"
        );
    }
    assert!(!captures_from_worker(MessageType::Response, b"stackTrace"));
    assert!(captures_from_worker(MessageType::Response, b"variables"));
    assert!(captures_from_worker(MessageType::Event, b"notYetInvented"));
}

#[test]
fn a_terminal_shows_lines_when_they_are_whole_and_prompts_when_it_is_quiet() {
    let mut stream = MaskedStream::new(rules());
    assert_eq!(stream.push("password = 'hun"), "");
    assert_eq!(stream.push("ter2'\n(Pdb) "), "password = ‹masked›\n");
    assert_eq!(stream.quiet(), "(Pdb) ");
    assert_eq!(stream.push("a\n-----BEGIN PRIVATE KEY-----\nMII"), "a\n");
    assert_eq!(stream.quiet(), "", "half a key is not shown");
    assert_eq!(
        stream.push("E\n-----END PRIVATE KEY-----\nb\n"),
        "‹masked›\nb\n"
    );
    let long = format!("-----BEGIN PRIVATE KEY-----\n{}", "A\n".repeat(20_000));
    assert_eq!(stream.push(&long), MASKED);
    assert_eq!(stream.push("AAAA\n-----END PRIV"), "");
    assert_eq!(stream.push("ATE KEY-----\nafter\n"), "\nafter\n");
}

/// Keys and lists, without what is shown.
fn shape(value: &Value) -> Value {
    const MAY_CHANGE: [&str; 6] = [
        "value",
        "result",
        "evaluateName",
        "memoryReference",
        "namedVariables",
        "indexedVariables",
    ];
    match value {
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !MAY_CHANGE.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), shape(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        _ => Value::Null,
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    json_of(
        "(password|token|[a-z'\"={},: \\\\ü\n]){0,12}",
        "(body|variables|name|value|type|result|output|success|message|evaluateName|variablesReference)",
    )
}

proptest! {
    #[test]
    fn a_secret_with_a_hidden_name_never_comes_out(
        before in "[a-z0-9 ,.(){}]{0,20}",
        name in "(password|DB_PASSWORD|api-key|accessToken|client_secret)",
        form in 0usize..7,
        secret in "[A-Z]{6}[a-z0-9 ,;:!/-]{0,8}[A-Z]{6}",
        after in "[a-z0-9 ,.(){}]{0,20}",
    ) {
        let text = match form {
            0 => format!("{before}{{'{name}': '{secret}'}}{after}"),
            1 => format!("{before}{{\"{name}\":\"{secret}\"}}{after}"),
            2 => format!("{before} {name}='{secret}'{after}"),
            3 => format!("{before} f({name} = [\"{secret}\", ('x', '{secret}')]){after}"),
            4 => format!("{before}(b'{name}', b'{secret}'){after}"),
            5 => format!("{before}'{{\\'{name}\\': \\'{secret}\\'}}'{after}"),
            _ => format!("{before}\"{{\\\"{name}\\\": \\\"{secret}\\\"}}\"{after}"),
        };
        let out = masked(&text);
        prop_assert!(!out.contains(&secret[..6]) && !out.contains(&secret[secret.len() - 6..]), "{} -> {}", text, out);
    }

    #[test]
    fn masking_twice_changes_nothing_more(text in "(password|token|'|\"|=|: |, |\\{|\\}|\\(|\\)|\\\\|[a-z]{1,3}|\n|ü){0,25}") {
        let once = masked(&text);
        prop_assert_eq!(masked(&once), once);
    }

    #[test]
    fn a_long_value_is_cut_between_characters(text in "[aü€🦀]{0,200}", max in 64usize..200) {
        let rules = Masking::new(&config::Masking { enabled: true, defaults: false, max_value: max, ..config::Masking::default() });
        let cut = rules.value(&text);
        prop_assert!(cut.len() <= max);
        prop_assert_eq!(&rules.value(&cut), &cut);
        prop_assert!(cut == text || cut.ends_with(CUT));
    }

    #[test]
    fn any_message_keeps_its_shape(body in any_json(), command in "(variables|evaluate|exceptionInfo|setVariable|x)", event in "(output|stopped|thread|y)", success in any::<bool>()) {
        for message in [
            json!({"type": "response", "request_seq": 1, "success": success, "command": command, "body": body}),
            json!({"type": "event", "event": event, "body": body}),
        ] {
            let mut masked = message.clone();
            mask(&mut session(), &mut masked);
            prop_assert_eq!(shape(&masked), shape(&message));
        }
    }

    #[test]
    fn a_stream_in_pieces_hides_what_the_whole_hides(
        lines in proptest::collection::vec("([a-z ]{0,8}|password=[A-Z]{8}|\\{'token': '[A-Z]{8}'\\}|AKIAIOSFODNN7EXAMPLE)", 1..8),
        cuts in proptest::collection::vec(1usize..12, 1..20),
    ) {
        let text = lines.join("\n") + "\n";
        let mut stream = MaskedStream::new(rules());
        let (mut out, mut rest, mut cuts) = (String::new(), text.as_str(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            out += &stream.push(now);
            rest = later;
        }
        out += &stream.quiet();
        prop_assert_eq!(out, masked(&text));
    }
}
