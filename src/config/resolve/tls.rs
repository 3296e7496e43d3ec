//! `[tls]`: its keys, what follows from leaving some of them out, and whether the files are usable.

use std::path::PathBuf;

use super::{Resolver, Setting, Shape, quoted};
use crate::config::address::Wrong;
use crate::config::model::{ClientAuth, Tls, TlsMode, TlsVersion};
use crate::config::raw::RawValue;
use crate::config::setting::{self, Read};
use crate::tls::Material;

const MODES: [(&str, TlsMode); 3] = [
    ("off", TlsMode::Off),
    ("optional", TlsMode::Optional),
    ("required", TlsMode::Required),
];
const VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];
const CLIENT_AUTH: [(&str, ClientAuth); 3] = [
    ("off", ClientAuth::Off),
    ("optional", ClientAuth::Optional),
    ("required", ClientAuth::Required),
];

impl Resolver {
    pub(super) fn tls(&mut self) -> Tls {
        let mut tls = Tls::default();
        self.choice("mode", &mut tls.mode, &MODES);
        self.file("cert_file", &mut tls.cert_file);
        self.file("key_file", &mut tls.key_file);
        self.choice("min_version", &mut tls.min_version, &VERSIONS);
        self.choice("client_auth", &mut tls.client_auth, &CLIENT_AUTH);
        self.file("client_ca_file", &mut tls.client_ca_file);
        self.file("client_crl_file", &mut tls.client_crl_file);
        // Whoever gives a certificate wants it used, and not beside plain text.
        if tls.cert_file.is_some() || tls.key_file.is_some() {
            self.follows("mode", &mut tls.mode, TlsMode::Required, &MODES);
        }
        if tls.client_ca_file.is_some() {
            let slot = &mut tls.client_auth;
            self.follows("client_auth", slot, ClientAuth::Required, &CLIENT_AUTH);
        }
        tls
    }

    /// What has to fit together in `[tls]`, and the files themselves.
    pub(super) fn check_tls(&mut self, tls: &Tls) {
        let before = self.problems.len();
        if tls.mode == TlsMode::Off {
            if tls.client_auth != ClientAuth::Off {
                self.problem(
                    "tls.client_auth",
                    "client certificates without TLS",
                    "tls.cert_file and tls.key_file, and a tls.mode other than \"off\"",
                    "client certificates exist inside TLS alone",
                );
            }
            return;
        }
        for (key, given) in [
            ("tls.cert_file", &tls.cert_file),
            ("tls.key_file", &tls.key_file),
        ] {
            if given.is_none() {
                self.problem(
                    key,
                    "nothing, although TLS is on",
                    "the path of a PEM file; --tls-cert and --tls-key name the two",
                    "`ray-relay cert self-signed` makes a pair for a first try",
                );
            }
        }
        match (tls.client_auth, &tls.client_ca_file) {
            (ClientAuth::Off, _) if tls.client_crl_file.is_some() => self.problem(
                "tls.client_crl_file",
                "a revocation list, although no client certificates are asked for",
                "tls.client_ca_file beside it",
                "or leave it out",
            ),
            (ClientAuth::Optional | ClientAuth::Required, None) => self.problem(
                "tls.client_ca_file",
                "nothing, although tls.client_auth asks for client certificates",
                "the path of a PEM file with the authorities that issue them",
                "or set tls.client_auth = \"off\"",
            ),
            (ClientAuth::Required, Some(_)) if tls.mode == TlsMode::Optional => self.problem(
                "tls.client_auth",
                "required, while tls.mode is optional",
                "tls.mode = \"required\", or tls.client_auth = \"optional\"",
                "whoever leaves out TLS would need no certificate",
            ),
            _ => {}
        }
        if self.problems.len() > before {
            return;
        }
        if let Err(faults) = Material::load(tls) {
            for fault in faults {
                let (key, found) = (fault.key(), fault.found());
                self.problem(key, &found, fault.expected(), &fault.hint());
            }
        }
    }

    fn choice<T: Copy + PartialEq>(
        &mut self,
        key: &'static str,
        slot: &mut T,
        words: &'static [(&'static str, T)],
    ) {
        self.set(
            "tls",
            key,
            slot,
            |value| word(value, words),
            |value| setting::choice(value, words),
        );
    }

    /// `key` is `value` where nobody said otherwise.
    fn follows<T: PartialEq>(
        &mut self,
        key: &'static str,
        slot: &mut T,
        value: T,
        words: &[(&str, T)],
    ) {
        if self.entries.contains_key(&("tls", key)) {
            return;
        }
        *slot = value;
        for setting in &mut self.settings {
            if (setting.section, setting.key) == ("tls", key) {
                setting.value = word(slot, words);
                setting.origin = "because of the files".to_owned();
            }
        }
    }

    /// The path of a file; one that is not given is not shown.
    fn file(&mut self, key: &'static str, slot: &mut Option<PathBuf>) {
        let entries = self.entries.get(&("tls", key)).cloned().unwrap_or_default();
        for entry in &entries {
            let Some(path) = self.read(entry, Shape::Path, path) else {
                continue;
            };
            self.settings
                .retain(|setting| (setting.section, setting.key) != ("tls", key));
            self.settings.push(Setting {
                section: "tls",
                key,
                value: quoted(&path.display()),
                origin: match entry.label.contains('.') {
                    true => entry.place.clone(),
                    false => entry.label.clone(),
                },
            });
            *slot = Some(path);
        }
    }
}

fn word<T: PartialEq>(value: &T, words: &[(&str, T)]) -> String {
    let word = words.iter().find(|(_, known)| known == value);
    quoted(&word.map_or("", |(word, _)| word))
}

/// Not the contents of a PEM file, which are easily pasted where its path is wanted.
fn path(value: &RawValue) -> Read<PathBuf> {
    const EXPECTED: &str = "the path of a PEM file";
    let path = setting::text(value, EXPECTED)?;
    if path.contains('\n') || path.contains("-----BEGIN") {
        return Err(Wrong {
            expected: EXPECTED.to_owned(),
            hint: Some("write the text to a file and name that".to_owned()),
        });
    }
    Ok(path.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::config::{ClientAuth, Flags, Resolved, Sources, TlsMode, resolve};
    use crate::tls::testing::{Authority, Files};

    fn resolved(environment: &[(&str, &str)], flags: Flags) -> Result<Resolved, Vec<String>> {
        let policy = ("RAY_RELAY_AUTH_POLICY_FILE".into(), "/policy".into());
        let environment = environment
            .iter()
            .map(|(key, value)| (format!("RAY_RELAY_TLS_{key}").into(), value.into()))
            .chain([policy])
            .collect();
        resolve(&Sources { environment, flags }).map_err(|problems| {
            let text = |problem: &crate::config::Problem| format!("{problem:?}");
            problems.problems.iter().map(text).collect()
        })
    }

    #[test]
    fn files_alone_mean_that_they_are_required() {
        let authority = Authority::new("test");
        let files = Files::new(&authority.server());
        let ca = files.write("ca.crt", &authority.pem);
        let path = |name: &str| Some(files.path().join(name).display().to_string());
        let flags = Flags {
            tls_cert: path("tls.crt"),
            tls_key: path("tls.key"),
            ..Flags::default()
        };
        let tls = resolved(&[], flags.clone()).unwrap().config.tls;
        assert_eq!(
            (tls.mode, tls.client_auth),
            (TlsMode::Required, ClientAuth::Off)
        );
        let ca = ("CLIENT_CA_FILE", ca.to_str().unwrap());
        let known = resolved(&[ca], flags.clone()).unwrap();
        assert_eq!(known.config.tls.client_auth, ClientAuth::Required);
        let shown = |key| {
            let mut settings = known.settings.iter();
            let setting = settings.find(|setting| (setting.section, setting.key) == ("tls", key));
            setting.map(|setting| (setting.value.as_str(), setting.origin.as_str()))
        };
        assert_eq!(
            shown("mode"),
            Some(("\"required\"", "because of the files"))
        );
        assert_eq!(shown("cert_file").unwrap().1, "--tls-cert");
        let said = [("MODE", "optional"), ca, ("CLIENT_AUTH", "optional")];
        let tls = resolved(&said, flags).unwrap().config.tls;
        assert_eq!(
            (tls.mode, tls.client_auth),
            (TlsMode::Optional, ClientAuth::Optional)
        );
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        let pasted = "-----BEGIN PRIVATE KEY-----\nSECRET";
        for (environment, keys) in [
            (
                &[("MODE", "required")][..],
                &["tls.cert_file", "tls.key_file"][..],
            ),
            (&[("CERT_FILE", "/nowhere")], &["tls.key_file"]),
            (&[("CLIENT_CA_FILE", "/nowhere")], &["tls.client_auth"]),
            (
                &[
                    ("CERT_FILE", "/nowhere"),
                    ("KEY_FILE", "/nowhere"),
                    ("CLIENT_CRL_FILE", "/x"),
                ],
                &["tls.client_crl_file"],
            ),
            (
                &[
                    ("CERT_FILE", "/nowhere"),
                    ("KEY_FILE", "/nowhere"),
                    ("CLIENT_AUTH", "optional"),
                ],
                &["tls.client_ca_file"],
            ),
            (
                &[
                    ("CERT_FILE", "/x"),
                    ("KEY_FILE", "/x"),
                    ("MODE", "optional"),
                    ("CLIENT_CA_FILE", "/x"),
                ],
                &["tls.client_auth"],
            ),
            (
                &[("CERT_FILE", "/nowhere"), ("KEY_FILE", "/nowhere")],
                &["tls.cert_file", "tls.key_file"],
            ),
            (&[("MODE", "on")], &["RAY_RELAY_TLS_MODE"]),
            (&[("KEY_FILE", pasted)], &["RAY_RELAY_TLS_KEY_FILE"]),
        ] {
            let problems = resolved(environment, Flags::default()).unwrap_err();
            assert_eq!(problems.len(), keys.len(), "{problems:#?}");
            for (problem, key) in problems.iter().zip(keys) {
                assert!(problem.contains(&format!("key: {key:?}")), "{problem}");
                assert!(!problem.contains("SECRET"), "{problem}");
            }
        }
    }
}
