use proptest::prelude::*;

use super::*;

fn row() -> HoldRow {
    HoldRow {
        worker_id: "a".repeat(56).as_str().into(),
        kind: Kind::Debugpy,
        port: 65_535,
        name: "\"".repeat(200).as_str().into(),
        session: "\\".repeat(200).as_str().into(),
        client: "\"".repeat(200).as_str().into(),
        peer: Some(
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"
                .parse()
                .unwrap(),
        ),
        replica: Hex([255; 8]),
        since_unix_ms: u64::MAX,
        parked: None,
    }
}

fn credential() -> Credential {
    Credential {
        id: "\"".repeat(64).as_str().into(),
        issued: Some(u64::MAX),
    }
}

#[test]
fn messages_match_the_protocol() {
    let open = FromRelay::Open(Open {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        cluster: "default".into(),
        node_id: "0a0b".into(),
        worker_id: "0c".into(),
        kind: Kind::Debugpy,
        port: 38_645,
        holder: None,
        resume: None,
        process: None,
        keep: None,
    });
    let text = r#"{"type":"open","stream":"0101010101010101","secret":"02020202020202020202020202020202","cluster":"default","node_id":"0a0b","worker_id":"0c","kind":"debugpy","port":38645,"holder":null}"#;
    assert_eq!(written(&open), text);
    assert_eq!(read::<FromRelay>(text).unwrap(), open);
    let refused = FromAgent::Refused {
        stream: Hex([1; 8]),
        kind: Refusal::NotAWorker,
        detail: "no".into(),
        holder: None,
    };
    let text =
        r#"{"type":"refused","stream":"0101010101010101","kind":"not_a_worker","detail":"no"}"#;
    assert_eq!(written(&refused), text);
    assert_eq!(written(&StreamGreeting::Dialled), r#"{"type":"dialled"}"#);
    let failed = r#"{"type":"failed","kind":"timed_out","detail":"slow"}"#;
    assert_eq!(written(&read::<StreamGreeting>(failed).unwrap()), failed);
}

#[test]
fn rendezvous_messages_match_the_protocol() {
    let listen = FromRelay::Listen {
        rendezvous: vec![Meeting {
            rendezvous: Hex([1; 8]),
            port: 7771,
        }],
    };
    let text = r#"{"type":"listen","rendezvous":[{"rendezvous":"0101010101010101","port":7771}]}"#;
    assert_eq!(written(&listen), text);
    assert_eq!(read::<FromRelay>(text).unwrap(), listen);
    let text = r#"{"type":"arrived","rendezvous":"0101010101010101","arrival":"0202020202020202","worker_id":"beef","node_id":"aaaa"}"#;
    let arrived = read::<FromAgent>(text).unwrap();
    assert_eq!(written(&arrived), text);
    let row = r#"{"rendezvous":"0101010101010101","port":7771}"#;
    let too_many = vec![row; MAX_ROWS + 1].join(",");
    let too_many = format!(r#"{{"type":"listen","rendezvous":[{too_many}]}}"#);
    assert!(read::<FromRelay>(&too_many).is_err());
    // From an older agent.
    let announce = r#"{"type":"announce","protocol":1,"version":"","nonce":"00000000000000000000000000000000","instance":"00000000000000000000000000000000","node_id":null,"addresses":[],"hostname":"","architecture":"","pid":1}"#;
    let FromAgent::Announce(announce) = read(announce).unwrap() else {
        panic!("no announcement");
    };
    assert_eq!(announce.reverse_ports, None);
    assert!(!written(&announce).contains("reverse_ports"));
}

#[test]
fn unknown_fields_and_types_are_ignored() {
    let text = r#"{"type":"cancel","stream":"0101010101010101","why":{"a":[1]}}"#;
    let cancel = FromRelay::Cancel {
        stream: Hex([1; 8]),
    };
    assert_eq!(read::<FromRelay>(text).unwrap(), cancel);
    let text = r#"{"type":"dance","steps":4}"#;
    assert_eq!(read::<FromRelay>(text).unwrap(), FromRelay::Unknown);
    assert_eq!(read::<FromAgent>(text).unwrap(), FromAgent::Unknown);
    let text = r#"{"type":"refused","stream":"0101010101010101","kind":"mood","detail":""}"#;
    let read = read::<FromAgent>(text).unwrap();
    assert!(matches!(read, FromAgent::Refused { kind, .. } if kind == Refusal::Other));
}

#[test]
fn oversized_or_invalid_message_is_refused() {
    let locate = |port: &str, title: &str| {
        format!(r#"{{"type":"locate","query":"0101010101010101","port":{port},"title":"{title}"}}"#)
    };
    assert!(read::<FromRelay>(&locate("1", "ray::f")).is_ok());
    for text in [
        locate("65536", "ray::f"),
        locate("-1", "ray::f"),
        locate("1", &"x".repeat(257)),
        r#"{"type":"locate"}"#.to_owned(),
        r#"{"type":"cancel","stream":"01"}"#.to_owned(),
        r#"{"type":"cancel","stream":"010101010101010g"}"#.to_owned(),
        r#"{"type":"cancel","stream":"+10101010101010é"}"#.to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        String::new(),
        " ".repeat(MAX_MESSAGE_BYTES + 1) + &locate("1", "ray::f"),
    ] {
        assert!(read::<FromRelay>(&text).is_err(), "{text}");
    }
    let longest_row = row();
    assert!(
        written(&longest_row).len() < MAX_ROW_BYTES,
        "{}",
        written(&longest_row).len()
    );
    let mut parked = longest_row.clone();
    parked.parked = Some(Parked {
        owner: "\"".repeat(256).as_str().into(),
        credential: Some(credential()),
        until_unix_ms: u64::MAX,
        evaluates: true,
        entered: None,
    });
    let bytes = written(&parked).len();
    let max_parked = (0..=MAX_ROWS).take_while(|rows| kept_fit(std::iter::repeat_n(bytes, *rows)));
    let max_parked = max_parked.last().unwrap();
    assert!(max_parked >= 40, "{max_parked}");
    let held = |rows: usize| {
        let mut workers = vec![longest_row.clone(); rows];
        workers[..max_parked].fill(parked.clone());
        written(&FromAgent::Held { workers })
    };
    let max_parked = held(MAX_ROWS);
    assert!(
        max_parked.len() <= MAX_MESSAGE_BYTES,
        "{}",
        max_parked.len()
    );
    assert!(read::<FromAgent>(&max_parked).is_ok());
    assert!(read::<FromAgent>(&held(MAX_ROWS + 1)).is_err());
}

#[test]
fn holder_fields_of_an_older_agent_default_to_empty() {
    let text = r#"{"type":"held","workers":[{"worker_id":"0c","port":4000,"name":"bob","session":"7","replica":"0909090909090909","since_unix_ms":5}]}"#;
    let Ok(FromAgent::Held { workers }) = read(text) else {
        panic!("not read");
    };
    assert!(workers[0].peer.is_none() && workers[0].client.is_empty());
    assert_eq!(workers[0].kind, Kind::Debugpy);
}

#[test]
fn ids_and_secrets_are_not_shown() {
    let text = r#"{"type":"hello","protocol":1,"version":"0.1.0","replica":"0123456789abcdef","nonce":"0123456789abcdef0123456789abcdef"}"#;
    let debug_text = format!("{:?}", read::<FromRelay>(text).unwrap());
    assert!(
        !debug_text.contains("abcdef") && !debug_text.contains("171"),
        "{debug_text}"
    );
}

proptest! {
    #[test]
    fn truncated_text_stays_short_and_valid(text in "\\PC{0,200}|[🎉é]{0,200}") {
        let text_64 = Text::<64>::new(&text);
        prop_assert!(text_64.len() <= 64);
        prop_assert_eq!(read::<Text<64>>(&written(&text_64)).unwrap(), text_64);
    }

    #[test]
    fn any_message_is_parsed_without_panic(text in "\\PC{0,200}|(\\{\"type\":\"(open|held|announce|hello|welcome)\".{0,100}\\})") {
        let _ = read::<FromRelay>(&text);
        let _ = read::<FromAgent>(&text);
        let _ = read::<StreamGreeting>(&text);
    }
}

#[test]
fn park_terms_match_the_protocol() {
    let text = r#"{"owner":"ada","keeps_ms":900000,"lasted_ms":5,"capabilities":"{}","attach":7}"#;
    let keep: ParkTerms = read(text).unwrap();
    assert_eq!(written(&keep), text);
    let resumed = written(&StreamGreeting::Resumed(Box::new(keep)));
    assert_eq!(resumed, format!(r#"{{"type":"resumed",{}"#, &text[1..]));
    let longest = ParkTerms {
        owner: "\"".repeat(256).as_str().into(),
        credential: Some(credential()),
        keeps_ms: u64::MAX,
        at_least_ms: Some(u64::MAX),
        at_most_ms: Some(u64::MAX),
        lasted_ms: u64::MAX,
        capabilities: "\"".repeat(16 * 1024).as_str().into(),
        attach: u64::MAX,
        cluster_session: Some(Hex([255; 8])),
        entered: Some(Box::new("\"".repeat(4096).as_str().into())),
    };
    let longest = written(&StreamGreeting::Resumed(Box::new(longest)));
    assert!(longest.len() < crate::wire::tunnel::MAX_FRAME_BYTES);
    let let_run = FromRelay::LetRun(LetRun {
        worker_id: "0c".into(),
        port: 1,
        session: None,
    });
    let text = r#"{"type":"let_run","worker_id":"0c","port":1}"#;
    assert_eq!(written(&let_run), text);
}

#[test]
fn inspection_messages_match_the_protocol() {
    let text = r#"{"type":"inspect","stream":"0101010101010101","secret":"02020202020202020202020202020202","node_id":"0a0b","worker_id":"0c","pid":41,"what":"look","patience_ms":5}"#;
    let inspect: FromRelay = read(text).unwrap();
    assert_eq!(written(&inspect), text);
    let newer = text.replace("look", "dance");
    assert!(matches!(
        read(&newer).unwrap(),
        FromRelay::Inspect(Inspect {
            what: Inspection::Unknown,
            ..
        })
    ));
    // From an older agent.
    let announce = r#"{"protocol":1,"version":"","nonce":"00000000000000000000000000000000","instance":"00000000000000000000000000000000","node_id":null,"addresses":[],"hostname":"","architecture":"","pid":1,"keeps":true}"#;
    assert!(!read::<Announce>(announce).unwrap().inspects);
}
