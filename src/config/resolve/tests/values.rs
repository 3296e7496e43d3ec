//! Values that are refused, by themselves or for what stands next to them.

use super::*;

#[test]
fn rules_for_masking_that_hide_everything_or_nothing_are_refused() {
    for (key, value) in [
        ("names", "['*']"),
        ("types", "['_*']"),
        ("names", "['']"),
        ("values", "[3]"),
        ("max_value", "'10B'"),
    ] {
        let problem = problem(&format!("[masking]\n{key} = {value}\n"));
        assert_eq!(problem.key, format!("masking.{key}"), "{value}");
    }
}

#[test]
fn other_machines_are_let_in_only_on_purpose() {
    let problem = problem("[listen]\naddress = \"0.0.0.0:5678\"\n");
    assert_eq!(problem.key, "listen.address");
    let hint = problem.hint.unwrap();
    for word in [
        "run code",
        "nobody is authenticated",
        "--auth-key",
        "kubectl port-forward",
        "--insecure-no-auth",
    ] {
        assert!(hint.contains(word), "{hint}");
    }
    let open = config(
        "[listen]\naddress = \"0.0.0.0:5678\"\ninsecure_no_auth = true\n",
        &[],
    );
    assert!(open.listen.address.ip().is_unspecified());
    let mut given = given("[listen]\naddress = \"0.0.0.0:5678\"\n", &[]);
    given.sources.flags.auth_key = vec!["/a,b.pub".to_owned(), "/c.pub".to_owned()];
    let resolved = resolve(&given.sources).unwrap();
    let keys: [std::path::PathBuf; 2] = ["/a,b.pub".into(), "/c.pub".into()];
    assert_eq!(resolved.config.auth.keys, keys);
    let shown = resolved.settings.iter().find(|s| s.key == "keys").unwrap();
    assert_eq!(
        (&*shown.value, &*shown.origin),
        (r#"["/a,b.pub", "/c.pub"]"#, "--auth-key")
    );
}

#[test]
fn values_have_to_fit_together() {
    for (file, key) in [
        (
            "[registry]\npoll_interval = \"20s\"\n",
            "registry.stale_after",
        ),
        ("[dap]\nmax_frame = \"64KiB\"\n", "dap.max_handshake_frame"),
        (
            "[advertise]\nmode = \"ports\"\nports = \"5670-5690\"\n",
            "advertise.ports",
        ),
        ("[advertise]\nmode = \"host\"\n", "advertise.host"),
        ("[auth]\nleeway = \"6m\"\n", "auth.leeway"),
        ("[auth]\nissuer = \"x\"\n", "auth.issuer"),
        ("[auth]\nthrottle_delay = \"2m\"\n", "auth.throttle_max"),
        ("[auth]\naudience = \"ray-relay-ticket\"\n", "auth.audience"),
        (
            "[advertise]\nhost = \"debug.example.com\"\n",
            "advertise.host",
        ),
        (
            "[[cluster]]\nray_address = \"http://a\"\n[[cluster]]\nray_address = \"http://b\"\n",
            "cluster.name",
        ),
        ("cluster = 1\n", "cluster"),
        ("listen = 1\n", "listen"),
        ("address = \"x\"\n", "address"),
        (
            "[http]\nallowed_hosts = [\"http://x\"]\n",
            "http.allowed_hosts",
        ),
        ("[audit]\nsink = \"file\"\n", "audit.file"),
        ("[audit]\nsyslog = \"logs:514\"\n", "audit.syslog"),
        ("[recording]\nmax_size = \"1B\"\n", "recording.max_size"),
        (
            "[registry]\nrequest_timeout = \"0s\"\n",
            "registry.request_timeout",
        ),
    ] {
        assert_eq!(problem(file).key, key, "{file}");
    }
}

#[test]
fn a_level_that_is_misspelt_is_not_taken_for_a_module() {
    assert!(resolve(&given("[log]\nlevel = \"ray_relay::dap=debug,info\"\n", &[]).sources).is_ok());
    assert_eq!(
        problem("[log]\nlevel = \"dbug\"\n").hint.unwrap(),
        "did you mean debug?"
    );
    assert!(problem("[log]\nlevel = \"a=b=c=d\"\n").hint.is_none());
}

#[test]
fn identity_providers_are_only_asked_where_nobody_can_answer_for_them() {
    for (file, key) in [
        (
            "[jwks]\nurl = \"http://login.example.com/keys\"",
            "jwks.url",
        ),
        (
            "[jwks]\nurl = \"https://me:secret@login.example.com/keys\"",
            "jwks.url",
        ),
        ("[jwks]\nurl = \"file:///keys\"", "jwks.url"),
        (
            "[jwks]\nfile = \"/k\"\nurl = \"https://login.example.com/keys\"",
            "jwks.file",
        ),
        ("[jwks]\nca_file = \"/ca\"", "jwks.ca_file"),
        ("[jwks]\nmax_stale = \"1m\"", "jwks.max_stale"),
        ("[kubernetes]\naudiences = []", "kubernetes.audiences"),
        ("[kubernetes]\naudiences = [\"\"]", "kubernetes.audiences"),
        ("[kubernetes]\nnamespace = \"Ray_\"", "kubernetes.namespace"),
        (
            "[kubernetes]\napi_server = \"http://10.0.0.1\"\ntoken_file = \"/t\"",
            "kubernetes.api_server",
        ),
        (
            "[kubernetes]\napi_server = \"https://10.0.0.1\"",
            "kubernetes.api_server",
        ),
        ("[kubernetes]\nca_file = \"/ca\"", "kubernetes.ca_file"),
        ("[kubernetes]\ntoken_file = \"/t\"", "kubernetes.token_file"),
    ] {
        // A value that is wrong by itself may leave its companions without it.
        let found = problems(file, &[]);
        assert!(
            found.iter().any(|problem| problem.key == key),
            "{file}: {found:#?}"
        );
        assert!(!format!("{found:?}").contains("secret"), "{found:#?}");
    }
    let config = config(
        "[jwks]\nurl = \"http://[::1]:1/keys\"\n[kubernetes]\nenabled = true\napi_server = \"http://127.0.0.1:2\"\ntoken_file = \"/t\"",
        &[],
    );
    assert!(config.jwks.is_given() && config.kubernetes.enabled);
}
