//! Secrets as programs have them, in the words of debugpy 1.8.22: all of them are hidden, and what only resembles one stays.

use std::time::{Duration, Instant};

use super::*;

/// The secret in each of the texts.
const PLANTED: &str = "Zq7plantd";

/// Values of variables whose names say nothing. What stands around the secret may be hidden with it.
const VALUES: &[&str] = &[
    // Containers, and what reprs as one.
    "{'user': 'ada', 'password': 'Zq7plantd'}",
    "{b'password': b'Zq7plantd'}",
    "{('db', 'password'): 'Zq7plantd'}",
    "{'a': [{'b': ({'password': 'Zq7plantd'},)}]}",
    "OrderedDict([('user', 'ada'), ('password', 'Zq7plantd')])",
    "OrderedDict({'user': 'ada', 'password': 'Zq7plantd'})",
    "defaultdict(<class 'list'>, {'password': ['Zq7plantd']})",
    "ChainMap({'password': 'Zq7plantd'})",
    "mappingproxy({'password': 'Zq7plantd'})",
    "dict_items([('password', 'Zq7plantd')])",
    "deque([('password', 'Zq7plantd')])",
    "frozenset({('token', 'Zq7plantd')})",
    "[('user', 'ada'), ('password', 'Zq7plantd')]",
    "[['user', 'ada'], ['password', 'Zq7plantd']]",
    "(('user', 'ada'), ('api_key', ('a', 'Zq7plantd')))",
    "[(b'authorization', b'Zq7plantd')]",
    "[('password', 'a', 'b'), ('password', 'Zq7plantd', ...",
    "{'password': 'Zq7plantd",
    // Objects.
    "Cred(user='ada', password='Zq7plantd')",
    "Login(user='ada', keys=Keys(api_key='Zq7plantd'))",
    "namespace(user='ada', password='Zq7plantd')",
    "functools.partial(<class 'app.Cred'>, password='Zq7plantd')",
    "<bound method Cred._asdict of Cred(user='ada', password='Zq7plantd')>",
    "<Keys.API_KEY: 'Zq7plantd'>",
    "[<Keys.API_KEY: ('a', 'Zq7plantd')>]",
    "{'k': <Keys.API_KEY: 'Zq7plantd'>}",
    "<ContextVar name='db_password' default='Zq7plantd' at 0x7f8e16375120>",
    "[<ContextVar name='db_password' default={'a': 'Zq7plantd'} at 0x7f8e16375120>]",
    "<Token var=<ContextVar name='token' default='Zq7plantd' at 0x7f8e1> at 0x7f8e2>",
    "<Cookie session_cookie=Zq7plantd for example.com/>",
    "{'name': 'password', 'value': 'Zq7plantd'}",
    "{'value': ['Zq7plantd'], 'name': 'password'}",
    "EnvVar(name='OPENAI_KEY', value='Zq7plantd', value_from=None)",
    "Parameter(key='api-key', default='Zq7plantd')",
    "ValueError('bad password: Zq7plantd')",
    "KeyError(('password', 'Zq7plantd'))",
    "PurePosixPath('/x?token=Zq7plantd')",
    // Commands.
    "['train.py', '--password', 'Zq7plantd', '--epochs', '3']",
    "['train.py', '--password=Zq7plantd']",
    "('a', b'--api-key', b'Zq7plantd')",
    "CompletedProcess(args=['mysql', '--password', 'Zq7plantd'], returncode=0)",
    "['/usr/bin/mysql', '-uada', '-pZq7plantd', 'db']",
    "['curl', '-u', 'ada:Zq7plantd', 'https://x']",
    "['curl', '-H', 'X-Api-Key: Zq7plantd']",
    "'train.py --password Zq7plantd --epochs 3'",
    "'a | train.py --epochs 3 -token Zq7plantd'",
    "\"mysql -u ada --password 'a b Zq7plantd' db\"",
    "'mysqldump -u ada -pZq7plantd db'",
    "'sudo sshpass -p Zq7plantd ssh ada@h'",
    "'redis-cli -h h -a Zq7plantd PING'",
    "'curl --user ada:Zq7plantd https://x'",
    "'PGPASSWORD=Zq7plantd psql -h db'",
    "'export A=1; train.py \\\\\\n  --token \\\\\\n  Zq7plantd'",
    "\"curl -H 'Authorization: Basic Zq7plantd' https://x\"",
    "{'cmd': 'train.py --password Zq7plantd', 'cwd': '/'}",
    // Files.
    "'db:\\n  user: ada\\n  password: Zq7plantd\\n  port: 3\\n'",
    "'db:\\n  password: |\\n    one\\n    Zq7plantd\\n  port: 3\\n'",
    "'db:\\n  password: >-\\n\\n    Zq7plantd\\n  port: 3\\n'",
    "'password:\\n  - one\\n  - Zq7plantd\\nport: 3\\n'",
    "'password:\\n- one\\n- Zq7plantd\\nport: 3\\n'",
    "'secrets:\\n  a: 1\\n  b:\\n    c: Zq7plantd\\nport: 3\\n'",
    "'env:\\n- name: DB_PASSWORD\\n  value: Zq7plantd\\n- name: B\\n  value: 3\\n'",
    "'[db]\\nuser = ada\\npassword = Zq7plantd\\n'",
    "'[db]\\npassword =\\n  Zq7plantd\\nuser = ada\\n'",
    "'A=1\\nOPENAI_KEY=Zq7plantd\\n'",
    "'GET / HTTP/1.1\\r\\nauthorization: Basic Zq7plantd\\r\\n'",
    "'HTTP/1.1 200 OK\\r\\nset-cookie: sid=Zq7plantd\\r\\n'",
    "'{\"headers\": [{\"name\": \"Authorization\", \"value\": \"Zq7plantd\"}]}'",
    "'{\"a\": \"{\\\\\"password\\\\\": \\\\\"Zq7plantd\\\\\"}\"}'",
    "'redis://:Zq7plantd@h:6379/0'",
    "'https://h/x?api_key=Zq7plantd&b=1'",
];

/// Names of variables that are hidden as a whole.
const CALLED: &[&str] = &[
    "password",
    "token_bytes",
    "token_list",
    "token_map",
    "tokens_by_user",
    "auth_tokens",
    "session_cookie",
    "session_cookies",
    "my_credentials",
    "passwords",
    "'api-key'",
    "b'password'",
    "('db', 'password')",
    "<ContextVar name='db_password' at 0x7f8e1>",
];

/// What is inside of something, as names, types and values; the secret is in none of them afterwards.
const LISTS: &[&[(&str, &str, &str)]] = &[
    // Pairs.
    &[("0", "str", "'password'"), ("1", "str", "'Zq7plantd'")],
    &[
        ("0", "bytes", "b'authorization'"),
        ("1", "bytes", "b'Zq7plantd'"),
    ],
    // A named tuple.
    &[
        ("password", "str", "'Zq7plantd'"),
        ("user", "str", "'ada'"),
        ("0", "str", "'ada'"),
        ("1", "str", "'Zq7plantd'"),
    ],
    // A member of an enumeration.
    &[
        ("name", "str", "'API_KEY'"),
        ("value", "str", "'Zq7plantd'"),
        ("_value_", "str", "'Zq7plantd'"),
    ],
    &[
        ("'value'", "str", "'Zq7plantd'"),
        ("'name'", "str", "'password'"),
    ],
    // What a variable of a context was before.
    &[
        ("old_value", "str", "'Zq7plantd'"),
        (
            "var",
            "ContextVar",
            "<ContextVar name='db_password' at 0x7f8e1>",
        ),
    ],
    // Commands.
    &[
        ("0", "str", "'train.py'"),
        ("1", "str", "'--password'"),
        ("2", "str", "'Zq7plantd'"),
    ],
    &[("0", "str", "'mysql'"), ("1", "str", "'-pZq7plantd'")],
    &[
        ("0", "str", "'curl'"),
        ("1", "str", "'-u'"),
        ("2", "str", "'ada:Zq7plantd'"),
    ],
    &[("0", "str", "'--password=Zq7plantd'")],
];

/// What is shown as it is.
const INNOCENT: &[&str] = &[
    "{'user': 'ada', 'steps': [1, 2, 3], 'lr': 0.1}",
    "OrderedDict([('user', 'ada'), ('steps', 3)])",
    "Cred(user='ada', steps=3)",
    "<Keys.USER: 'ada'>",
    "<ContextVar name='request_id' default='x' at 0x7f8e16375120>",
    "{'name': 'train', 'value': 'x'}",
    "Parameter(key='epochs', default=3)",
    "['train.py', '--epochs', '3', '--out', '/tmp']",
    "'train.py --epochs 3 --tokenizer fast -p 80'",
    "'docker run -p 80:80 mysql'",
    "['mysql', '-u', 'ada', '-P', '3306', 'db']",
    "'curl -o out https://x'",
    "'db:\\n  user: ada\\n  host: |\\n    a\\n    b\\n  port: 3\\n'",
    "'env:\\n- name: EPOCHS\\n  value: 3\\n'",
    "'[db]\\nuser = ada\\nport = 3\\n'",
    "{'num_tokens': 7, 'token_ids': [1, 2], 'tokenizer': 'fast', 'token_type_ids': [0]}",
    "{'token_count': 7, 'tokens': ['a', 'b'], 'token_embeddings': 3, 'cookies': 2}",
    "<__main__.Attr object at 0x7f8e141fef10>",
    "tensor([[0.1314, 0.2718], [0.5772, 1.6180]], device='cuda:0')",
    "DataFrame(columns=['a', 'b'], index=RangeIndex(start=0, stop=3))",
    "\"it's a < b and c > d, isn't it?\"",
    "functools.partial(<class 'app.Cred'>, user='ada')",
    "<Section: db>",
    "'https://example.com/x?page=3&sort=key'",
    "lambda x: x[1:3]",
    "'' '\\\\' \"'\"",
];

fn list(of: &[(&str, &str, &str)]) -> Value {
    let variable = |(name, kind, value): &(&str, &str, &str)| json!({"name": name, "type": kind, "value": value, "evaluateName": "x", "variablesReference": 0});
    json!({"type": "response", "request_seq": 1, "success": true, "command": "variables",
        "body": {"variables": of.iter().map(variable).collect::<Vec<_>>()}})
}

fn shown(of: &[(&str, &str, &str)]) -> String {
    let mut message = list(of);
    session().on_worker(&mut message, Carries::Variables);
    message.to_string()
}

#[test]
fn every_planted_secret_is_hidden() {
    let mut leaked = Vec::new();
    for text in VALUES {
        assert!(text.contains(PLANTED), "{text}");
        let masked = masked(text);
        if masked.contains(PLANTED) {
            leaked.push(format!("{text} -> {masked}"));
        }
        // It was shortened in a container, by what holds it or by its own end.
        for whole in [format!("[{text}, 'b']"), format!("{{'a': {text}}}")] {
            let masked = rules().text(&whole).into_owned();
            if masked.contains(PLANTED) {
                leaked.push(format!("{whole} -> {masked}"));
            }
        }
    }
    for name in CALLED {
        let shown = shown(&[(name, "str", "'Zq7plantd'")]);
        if shown.contains(PLANTED) {
            leaked.push((*name).to_owned());
        }
    }
    for of in LISTS {
        let shown = shown(of);
        if shown.contains(PLANTED) {
            leaked.push(shown);
        }
    }
    assert!(leaked.is_empty(), "{} leak: {leaked:#?}", leaked.len());
}

#[test]
fn what_is_no_secret_stays() {
    for text in INNOCENT {
        assert_eq!(masked(text), *text);
        let message = list(&[("a", "str", text), ("0", "str", text), ("1", "int", "3")]);
        let mut masked = message.clone();
        session().on_worker(&mut masked, Carries::Variables);
        assert_eq!(masked, message);
    }
    let list_of = [
        ("name", "str", "'train'"),
        ("value", "int", "3"),
        ("0", "str", "'a'"),
        ("1", "str", "'b'"),
    ];
    let mut masked = list(&list_of);
    session().on_worker(&mut masked, Carries::Variables);
    assert_eq!(masked, list(&list_of));
}

#[test]
fn what_is_beside_a_secret_stays() {
    for (text, left) in [
        (
            "['train.py', '--password', 'x', '--epochs', '3']",
            "['train.py', '--password', ‹masked›, '--epochs', '3']",
        ),
        (
            "'train.py --password x --epochs 3'",
            "'train.py --password ‹masked› --epochs 3'",
        ),
        (
            "'db:\\n  password: |\\n    one\\n    two\\n  port: 3\\n'",
            "'db:\\n  password: ‹masked›\\n    ‹masked›\\n  port: 3\\n'",
        ),
        (
            "<ContextVar name='db_password' default='x' at 0x7f8e1>",
            "<ContextVar name='db_password' default=‹masked› at 0x7f8e1>",
        ),
        (
            "{'name': 'password', 'value': 'x', 'n': 1}",
            "{'name': 'password', ‹masked›, 'n': 1}",
        ),
        (
            "{('db', 'password'): 'x', 'n': 1}",
            "{('db', 'password'): ‹masked›, 'n': 1}",
        ),
        (
            "['curl', '-u', 'ada:x', 'https://x']",
            "['curl', '-u', 'ada:‹masked›', 'https://x']",
        ),
    ] {
        assert_eq!(masked(text), left);
    }
}

proptest! {
    #[test]
    fn a_planted_secret_never_comes_out_wherever_it_stands(
        which in 0..VALUES.len(),
        around in 0usize..6,
        secret in "[A-Z]{4}[A-Za-z0-9_+]{4,20}",
    ) {
        let text = VALUES[which].replace(PLANTED, &secret);
        let text = match around {
            0 => text,
            1 => format!("{{'a': 1, 'b': {text}, 'c': 2}}"),
            2 => format!("Some(x=[1, {text}], y='z')"),
            3 => format!("<a.B(x={text}) at 0x1>"),
            4 => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
            _ => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        };
        let out = masked(&text);
        prop_assert!(!out.contains(&secret), "{} -> {}", text, out);
        prop_assert_eq!(masked(&out), out);
    }

    #[test]
    fn any_pieces_of_it_are_read_and_read_alike_twice(
        pieces in proptest::collection::vec("(password|API_KEY|--token|-p|mysql|curl|-u|name|value|default|x|ada:x|'|\"|\\\\|\\\\n|\n|  |- |=|: |, |\\(|\\)|\\[|\\]|\\{|\\}|<A|>|‹|ü)", 0..24),
    ) {
        let text = pieces.concat();
        let once = masked(&text);
        prop_assert_eq!(masked(&once), once, "{}", text);
    }
}

#[test]
fn the_time_it_takes_grows_with_the_text_alone() {
    for piece in [
        "('password', ",
        "'",
        "\"",
        "\\",
        "<a ",
        "password: |\n ",
        "'a\\'",
        "--token '",
        "{'name': 'password', 'value': ",
        "password=",
        "x, ",
        "mysql -p ",
        "\\\\\\'password\\\\\\': ",
        "[",
        "'password', ",
    ] {
        let text = "password ".to_owned() + &piece.repeat((128 << 10) / piece.len());
        let start = Instant::now();
        masked(&text);
        // Of what is quadratic it would be minutes.
        let took = start.elapsed();
        assert!(took < Duration::from_secs(20), "{piece}: {took:?}");
    }
}
