//! What kube says of a kubeconfig or of a credential plugin, and what is told of that.

use kube::client::ClientBuilder;
use kube::config::{ExecConfig, Kubeconfig};

use crate::identity::kubernetes::api::cause;

const SECRET: &str = "eyJhbGciOi";

#[test]
fn a_kubeconfig_that_cannot_be_read_is_not_quoted() {
    let begun = "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n";
    for broken in [
        format!("    token: [{SECRET}\n"),
        format!("    token: {SECRET}: x\n"),
        format!("    token: {SECRET}\n   indented: wrong\n"),
        format!("    token: {SECRET}\n    exec: {SECRET}\n"),
        format!("    exec: {{command: [], args: [{SECRET}]}}\n"),
    ] {
        let why = Kubeconfig::from_yaml(&format!("{begun}{broken}")).unwrap_err();
        let told = cause(&why);
        assert!(!told.contains(SECRET), "{told}");
        assert!(
            told.starts_with("it cannot be read as YAML (line "),
            "{told}"
        );
    }
}

#[test]
fn what_a_credential_plugin_prints_is_not_quoted() {
    for (printed, code, expected) in [
        (
            format!(r#"{{"status": {{"token": ["{SECRET}"]}}}}"#),
            0,
            "what the kubeconfig's credential plugin printed is no ExecCredential",
        ),
        (
            format!("{SECRET}: [ {SECRET}"),
            0,
            "what the kubeconfig's credential plugin printed is no ExecCredential",
        ),
        (
            SECRET.to_owned(),
            3,
            "the kubeconfig's credential plugin failed: exit status: 3",
        ),
    ] {
        let told = refused(&format!("printf '%s' '{printed}'; exit {code}"));
        assert!(!told.contains(SECRET), "{told}");
        assert_eq!(told, expected);
    }
}

#[test]
fn a_proxy_is_not_quoted() {
    let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    for scheme in ["http", "socks5", "ftp"] {
        let proxy = format!("{scheme}://me:{SECRET}@127.0.0.1:2");
        config.proxy_url = Some(proxy.parse().unwrap());
        let told = cause(
            &ClientBuilder::try_from(config.clone())
                .map(|_| ())
                .unwrap_err(),
        );
        assert_eq!(
            told,
            "it is to be asked through a proxy, which the relay does not do"
        );
    }
}

/// What is told where a credential plugin does what `script` says.
fn refused(script: &str) -> String {
    let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    config.auth_info.exec = Some(ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1".into()),
        command: Some("sh".into()),
        args: Some(vec!["-c".into(), script.into()]),
        env: None,
        drop_env: None,
        install_hint: None,
        interactive_mode: None,
        provide_cluster_info: false,
        cluster: None,
        other: Default::default(),
    });
    cause(&ClientBuilder::try_from(config).map(|_| ()).unwrap_err())
}
