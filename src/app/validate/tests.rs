//! Tests the rules for the files and patterns of a configuration.
#![allow(clippy::unwrap_used)]

use super::resolve;
use ray_relay_base::config::testing::test_sources;
use ray_relay_base::config::{ClientAuth, Flags, Problem, Resolved, Sources, TlsMode};
use ray_relay_base::dial::testing::{Authority, Files};

/// Returns the problems of `file` as the configuration file.
fn problems(file: &str) -> Vec<Problem> {
    resolve(&test_sources(file, &[]).sources)
        .unwrap_err()
        .problems
}

/// `tls` holds the variables for TLS: `KEY=VALUE, KEY=VALUE`.
fn resolved(tls: &str, flags: Flags) -> Result<Resolved, Vec<String>> {
    let policy = ("RAY_RELAY_AUTH_POLICY_FILE".into(), "/policy".into());
    let tls = tls.split_terminator(", ").map(|pair| {
        let (key, value) = pair.split_once('=').unwrap();
        (format!("RAY_RELAY_TLS_{key}").into(), value.into())
    });
    let environment = tls.chain([policy]).collect();
    resolve(&Sources { environment, flags }).map_err(|problems| {
        let text = |problem: &ray_relay_base::config::Problem| format!("{problem:?}");
        problems.problems.iter().map(text).collect()
    })
}

#[test]
fn tls_files_alone_imply_required() {
    let authority = Authority::new("test");
    let files = Files::new(&authority.server());
    let ca = files.write("ca.crt", &authority.pem);
    let path = |name: &str| Some(files.path().join(name).display().to_string());
    let flags = Flags {
        tls_cert: path("tls.crt"),
        tls_key: path("tls.key"),
        ..Flags::default()
    };
    let tls = resolved("", flags.clone()).unwrap().config.tls;
    assert_eq!(tls.mode, TlsMode::Required);
    assert_eq!(tls.client_auth, ClientAuth::Off);
    let ca = format!("CLIENT_CA_FILE={}", ca.display());
    let with_ca = resolved(&ca, flags.clone()).unwrap();
    assert_eq!(with_ca.config.tls.client_auth, ClientAuth::Required);
    let setting_of = |key| {
        let mut settings = with_ca.settings.iter();
        let setting = settings.find(|setting| (setting.section, setting.key) == ("tls", key));
        setting.map(|setting| (setting.value.as_str(), setting.origin.as_str()))
    };
    let required = ("\"required\"", "because of the files");
    assert_eq!(setting_of("mode"), Some(required));
    assert_eq!(setting_of("cert_file").unwrap().1, "--tls-cert");
    let explicit = format!("MODE=optional, {ca}, CLIENT_AUTH=optional");
    let tls = resolved(&explicit, flags).unwrap().config.tls;
    assert_eq!(tls.mode, TlsMode::Optional);
    assert_eq!(tls.client_auth, ClientAuth::Optional);
}

#[test]
fn conflicting_tls_settings_are_reported() {
    const PAIR: &str = "CERT_FILE=/nowhere, KEY_FILE=/nowhere";
    let with_pair = |pairs: &str| format!("{PAIR}, {pairs}");
    for (tls, keys) in [
        ("MODE=required", "tls.cert_file, tls.key_file"),
        ("CERT_FILE=/nowhere", "tls.key_file"),
        ("CLIENT_CA_FILE=/nowhere", "tls.client_auth"),
        (&with_pair("CLIENT_CRL_FILE=/x"), "tls.client_crl_file"),
        (&with_pair("CLIENT_AUTH=optional"), "tls.client_ca_file"),
        (
            &with_pair("MODE=optional, CLIENT_CA_FILE=/x"),
            "tls.client_auth",
        ),
        (PAIR, "tls.cert_file, tls.key_file"),
        ("MODE=on", "RAY_RELAY_TLS_MODE"),
        (PASTED, "RAY_RELAY_TLS_KEY_FILE"),
    ] {
        let problems = resolved(tls, Flags::default()).unwrap_err();
        let keys: Vec<_> = keys.split(", ").collect();
        assert_eq!(problems.len(), keys.len(), "{problems:#?}");
        for (problem, key) in problems.iter().zip(keys) {
            assert!(problem.contains(&format!("key: {key:?}")), "{problem}");
            assert!(!problem.contains("SECRET"), "{problem}");
        }
    }
}

const PASTED: &str = "KEY_FILE=-----BEGIN PRIVATE KEY-----\nSECRET";

#[test]
fn notice_files_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("short.key");
    std::fs::write(&key, "SECRET").unwrap();
    let file = format!(
        "[notice]\nurl_file = \"/nowhere/url\"\nkey_file = {:?}\n",
        key.display().to_string()
    );
    let problems = problems(&file);
    let keys: Vec<_> = problems.iter().map(|problem| &*problem.key).collect();
    assert_eq!(
        keys,
        ["notice.url_file", "notice.key_file"],
        "{problems:#?}"
    );
    assert!(!format!("{problems:?}").contains("SECRET"), "{problems:#?}");
}

#[test]
fn client_certificates_need_a_policy() {
    let file = "[tls]\nmode = \"required\"\ncert_file = \"/c\"\nkey_file = \"/k\"\nclient_auth = \"required\"\nclient_ca_file = \"/a\"\n";
    let needs_policy = |file: &str| {
        let problems = problems(file);
        problems
            .iter()
            .any(|p| p.expected.contains("auth.policy_file"))
    };
    assert!(needs_policy(file));
    assert!(!needs_policy(&format!(
        "{file}[auth]\npolicy_file = \"/p\"\n"
    )));
}
