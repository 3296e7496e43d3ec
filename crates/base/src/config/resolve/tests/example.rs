//! Tests the example of a configuration, `config/example.toml`.

use super::*;
use crate::config::Advertise;
use crate::config::settings::{Cluster, SECTIONS, Section};

const EXAMPLE: &str = include_str!("../../../../../../config/example.toml");

#[test]
fn the_example_equals_the_defaults() {
    assert_eq!(config(EXAMPLE, &[]), Config::default());
    assert_eq!(config("", &[]), Config::default());
}

#[test]
fn example_lists_every_key_with_its_default() {
    let table: toml::Table = EXAMPLE.parse().unwrap();
    let assert_listed = |table: &toml::Value, section: &str, key: &str| {
        let (_, text) = EXAMPLE.split_once(&format!("\n[{section}]")).unwrap();
        let text = text.split("\n[").next().unwrap();
        let commented = text.contains(&format!("\n# {key} = "));
        assert!(table.get(key).is_some() != commented, "{section}.{key}");
    };
    for (section, keys) in SECTIONS {
        for key in *keys {
            assert_listed(&table[*section], section, key);
        }
    }
    for key in Cluster::KEYS.iter().filter(|key| **key != "token_file") {
        assert_listed(&table["cluster"][0], "[cluster]", key);
    }
    // No value may come from a default: the example sets every key.
    let test_sources = test_sources(EXAMPLE, &[]);
    for setting in resolve(&test_sources.sources).unwrap().settings {
        assert_ne!(setting.origin, "default", "{setting:?}");
    }
}

#[test]
fn commented_values_of_the_example_are_valid() {
    let keys = "label_selector|token_file|url_file|link = |api_server|ca_file|namespace|url|host = |file = \"/var|dir = |otlp = ";
    let audit_key = "key_file = \"/etc/ray-relay/audit";
    let notice_key = "key_file = \"/etc/ray-relay/notice";
    let uncommented = keys.split('|').chain([audit_key, notice_key]);
    let uncommented = uncommented.fold(EXAMPLE.to_owned(), |text, key| {
        text.replace(&format!("\n# {key}"), &format!("\n{key}"))
    });
    let config = config(&uncommented, &[]);
    assert!(config.clusters[0].token_file.is_some());
    assert!(config.kubernetes.ca_file.is_some() && config.jwks.url.is_some());
    assert!(config.audit.file.is_some() && config.audit.key_file.is_some());
    assert!(config.recording.dir.is_some() && config.telemetry.otlp.is_some());
    let notice = &config.notice;
    assert!(notice.url_file.is_some() && notice.key_file.is_some() && notice.link.is_some());
    let by_host = uncommented.replace("mode = \"single\"", "mode = \"host\"");
    let by_host = resolve(&test_sources(&by_host, &[]).sources)
        .unwrap()
        .config;
    let template = "{id}.debug.example.com".to_owned();
    assert_eq!(by_host.advertise, Advertise::Host(template));
}
