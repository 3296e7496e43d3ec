//! The example file of the configuration, `config/example.toml`.

use super::*;
use crate::config::Advertise;
use crate::config::settings::{Cluster, SECTIONS, Section};

const EXAMPLE: &str = include_str!("../../../../config/example.toml");

#[test]
fn the_example_equals_the_defaults() {
    assert_eq!(config(EXAMPLE, &[]), Config::default());
    assert_eq!(config("", &[]), Config::default());
}

#[test]
fn the_example_names_every_key_and_each_with_its_default() {
    let table: toml::Table = EXAMPLE.parse().unwrap();
    let explained = |table: &toml::Value, section: &str, key: &str| {
        let commented = EXAMPLE.contains(&format!("\n# {key} = "));
        assert!(table.get(key).is_some() != commented, "{section}.{key}");
    };
    for (section, keys) in SECTIONS {
        for key in *keys {
            explained(&table[*section], section, key);
        }
    }
    for key in Cluster::KEYS.iter().filter(|key| **key != "token_file") {
        explained(&table["cluster"][0], "cluster", key);
    }
    // The values say where they came from: the file, for all but those without a default.
    let given = given(EXAMPLE, &[]);
    for setting in resolve(&given.sources).unwrap().settings {
        assert_ne!(
            setting.origin, "default",
            "{}.{}",
            setting.section, setting.key
        );
    }
}

#[test]
fn commented_values_of_the_example_are_right_too() {
    let uncommented = EXAMPLE
        .replace("\n# token_file", "\ntoken_file")
        .replace("\n# api_server", "\napi_server")
        .replace("\n# ca_file", "\nca_file")
        .replace("\n# namespace", "\nnamespace")
        .replace("\n# url", "\nurl")
        .replace("\n# host = ", "\nhost = ")
        .replace("\n# file = \"/var", "\nfile = \"/var")
        .replace(
            "\n# key_file = \"/etc/ray-relay/audit",
            "\nkey_file = \"/etc/ray-relay/audit",
        )
        .replace("\n# dir = ", "\ndir = ");
    let config = config(&uncommented, &[]);
    assert!(config.clusters[0].token_file.is_some());
    assert!(config.kubernetes.ca_file.is_some() && config.jwks.url.is_some());
    assert!(config.audit.file.is_some() && config.audit.key_file.is_some());
    assert!(config.recording.dir.is_some());
    let host = resolve(
        &given(
            &uncommented.replace("mode = \"single\"", "mode = \"host\""),
            &[],
        )
        .sources,
    );
    assert_eq!(
        host.unwrap().config.advertise,
        Advertise::Host("{id}.debug.example.com".to_owned())
    );
}
