//! Tests values that are refused, alone or in combination with others.

use std::time::Duration;

use super::*;

#[test]
fn open_listen_address_must_be_deliberate() {
    const ALL_INTERFACES: &str = "[listen]\naddress = '0.0.0.0:5678'\n";
    let problem = problem(ALL_INTERFACES);
    assert_eq!(problem.key, "listen.address");
    let hint = problem.hint.unwrap();
    let words =
        "without authentication, run code, --auth-key, kubectl port-forward, --insecure-no-auth";
    for word in words.split(", ") {
        assert!(hint.contains(word), "{hint}");
    }
    let open = config(&format!("{ALL_INTERFACES}insecure_no_auth = true"), &[]);
    assert!(open.listen.address.ip().is_unspecified());
    let mut test_sources = test_sources(ALL_INTERFACES, &[]);
    test_sources.sources.flags.auth_key = vec!["/a,b.pub".to_owned(), "/c.pub".to_owned()];
    let resolved = resolve(&test_sources.sources).unwrap();
    let keys: [std::path::PathBuf; 2] = ["/a,b.pub".into(), "/c.pub".into()];
    assert_eq!(resolved.config.auth.keys, keys);
    let printable = resolved.settings.iter().find(|s| s.key == "keys").unwrap();
    assert_eq!(printable.value, r#"["/a,b.pub", "/c.pub"]"#);
    assert_eq!(printable.origin, "--auth-key");
}

#[test]
fn conflicting_values_are_refused() {
    for (file, key) in [
        (
            "[advertise]\nmode = 'ports'\nports = '5670-5690'",
            "advertise.ports",
        ),
        ("[advertise]\nmode = 'host'", "advertise.host"),
        ("[auth]\nleeway = '6m'", "auth.leeway"),
        ("[auth]\nissuer = 'x'", "auth.issuer"),
        ("[auth]\naudience = 'ray-relay-ticket'", "auth.audience"),
        ("[advertise]\nhost = 'debug.example.com'", "advertise.host"),
        (TWO_CLUSTERS, "cluster.name"),
        ("cluster = 1", "cluster"),
        ("listen = 1", "listen"),
        ("address = 'x'", "address"),
        ("[http]\nallowed_hosts = ['http://x']", "http.allowed_hosts"),
        ("[audit]\nsink = 'file'", "audit.file"),
        ("[audit]\nsyslog = 'logs:514'", "audit.syslog"),
        ("[recording]\nmax_size = '1B'", "recording.max_size"),
        (
            "[registry]\nrequest_timeout = '0s'",
            "registry.request_timeout",
        ),
    ] {
        assert_eq!(problem(file).key, key, "{file}");
    }
}

/// Two clusters with the default name.
const TWO_CLUSTERS: &str =
    "[[cluster]]\nray_address = 'http://a'\n[[cluster]]\nray_address = 'http://b'";

#[test]
fn misspelt_log_level_is_not_a_module() {
    assert!(
        resolve(&test_sources("[log]\nlevel = \"ray_relay_dap=debug,info\"\n", &[]).sources)
            .is_ok()
    );
    let misspelt = problem("[log]\nlevel = 'dbug'");
    assert_eq!(misspelt.hint.unwrap(), "did you mean debug?");
    assert!(problem("[log]\nlevel = \"a=b=c=d\"\n").hint.is_none());
}

#[test]
fn identity_provider_urls_must_be_secure() {
    for (section, text, key) in [
        ("jwks", "url = 'http://login.example.com/keys'", "url"),
        (
            "jwks",
            "url = 'https://me:secret@login.example.com/keys'",
            "url",
        ),
        ("jwks", "url = 'file:///keys'", "url"),
        (
            "jwks",
            "file = '/k'\nurl = 'https://login.example.com/keys'",
            "file",
        ),
        ("jwks", "ca_file = '/ca'", "ca_file"),
        ("jwks", "max_stale = '1m'", "max_stale"),
        ("notice", "ca_file = '/ca'", "ca_file"),
        ("notice", "key_file = '/secret'", "key_file"),
        ("notice", "on = []", "on"),
        ("notice", "on = ['paused', 'resumed']", "on"),
        ("notice", "paused_for = '0s'", "paused_for"),
        ("notice", "text = '{task}'", "text"),
        ("notice", "link = 'https://ann:secret@relay'", "link"),
        ("kubernetes", "audiences = []", "audiences"),
        ("kubernetes", "audiences = ['']", "audiences"),
        ("kubernetes", "namespace = 'Ray_'", "namespace"),
        (
            "kubernetes",
            "api_server = 'http://10.0.0.1'\ntoken_file = '/t'",
            "api_server",
        ),
        (
            "kubernetes",
            "api_server = 'https://10.0.0.1'",
            "api_server",
        ),
        ("kubernetes", "ca_file = '/ca'", "ca_file"),
        ("kubernetes", "token_file = '/t'", "token_file"),
    ] {
        // An invalid value may cause more problems in keys that depend on it.
        let (file, key) = (format!("[{section}]\n{text}"), format!("{section}.{key}"));
        let found = problems(&file, &[]);
        let is_reported = found.iter().any(|problem| problem.key == key);
        assert!(is_reported, "{file}: {found:#?}");
        assert!(!format!("{found:?}").contains("secret"), "{found:#?}");
    }
    let config = config(
        "[jwks]\nurl = \"http://[::1]:1/keys\"\n[kubernetes]\nenabled = true\napi_server = \"http://127.0.0.1:2\"\ntoken_file = \"/t\"",
        &[],
    );
    assert!(config.jwks.is_given() && config.kubernetes.enabled);
}

#[test]
fn collective_limit_must_exceed_the_release_margin() {
    let cluster = "[[cluster]]\nray_address = \"http://head:8265\"\n[release]\n";
    let release_config = |keys: &str| format!("{cluster}{keys}");
    let release = config(&release_config("collective_timeout = \"30m\"\n"), &[]).release;
    assert_eq!(
        release.collective_timeout_on("default"),
        Some(Duration::from_secs(1800))
    );
    assert!(!release.releases(), "a limit alone releases nothing");
    let limit_and_margin = "collective_timeout = \"30m\"\nbefore_collective_timeout = \"2m\"\n";
    assert!(
        config(&release_config(limit_and_margin), &[])
            .release
            .releases()
    );
    let too_long = "collective_timeout = \"2m\"\nbefore_collective_timeout = \"2m\"\n";
    let margin_problem = problem(&release_config(too_long));
    assert_eq!(margin_problem.key, "release.before_collective_timeout");
    let default_only = "collective_timeout = \"30m\"\nclusters = [\"default\"]\n";
    let release = config(&release_config(default_only), &[]).release;
    assert_eq!(release.collective_timeout_on("other"), None);
}

#[test]
fn discovery_needs_no_configured_cluster() {
    let found = config(
        "[discovery]\nkubernetes = true\nnamespaces = [\"ml\"]\n",
        &[],
    );
    assert_eq!(found.clusters, []);
    assert_eq!(
        found.discovery.ray_address.of("a-head-svc", "ml", 8265),
        "http://a-head-svc.ml.svc:8265"
    );
    let cluster =
        "[[cluster]]\nray_address = \"http://head:8265\"\n[release]\nclusters = [\"ml.train\"]\n";
    let limit_and_margin = format!("[discovery]\nkubernetes = true\n{cluster}");
    assert_eq!(config(&limit_and_margin, &[]).clusters.len(), 1);
    assert_eq!(problem(cluster).key, "release.clusters");
    for address in [
        "http://head:8265",
        "http://{service}:8265",
        "http://{namespace}:{port}",
        "http://{service}.{namespace}:{prot}",
        "ftp://{service}.{namespace}",
        "http://u:p@{service}.{namespace}",
    ] {
        let refused = problem(&format!("[discovery]\nray_address = \"{address}\"\n"));
        assert_eq!(refused.key, "discovery.ray_address", "{address}");
        assert!(!refused.found.contains("u:p"), "{}", refused.found);
    }
    for namespaces in ["\"ml\"", "[\"ML\"]", "[\"a.b\"]", "[\"\"]", "[\"a/b\"]"] {
        let refused = problem(&format!("[discovery]\nnamespaces = {namespaces}\n"));
        assert_eq!(refused.key, "discovery.namespaces", "{namespaces}");
    }
    assert_eq!(
        problem("[discovery]\nmax_clusters = 513\n").key,
        "discovery.max_clusters"
    );
}
