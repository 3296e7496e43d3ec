//! Selection and reading of a kubeconfig.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use kube::Config;
use kube::config::{ExecConfig, ExecInteractiveMode, KubeConfigOptions, Kubeconfig};
use tokio::task::spawn_blocking;

use super::error::{KubeError, MAX_NAME_CHARS, MAX_PLUGIN_OUTPUT};
use ray_relay_base::dial::Proxies;
use ray_relay_base::wire::text::shortened;

/// Selects a kubeconfig, its context and namespace.
#[derive(Debug, Clone, Default)]
pub struct KubeconfigChoice {
    /// `None`: those of `KUBECONFIG`, or the one in the home directory.
    pub kubeconfig: Option<PathBuf>,
    /// `None`: the current one.
    pub context: Option<String>,
    /// `None`: that of the context.
    pub namespace: Option<String>,
}

/// The parsed kubeconfig.
pub struct ReadKubeconfig {
    pub config: Config,
    /// The name of the context.
    pub context: String,
    /// The proxies towards the API server.
    pub proxies: Proxies,
}

/// Reads the kubeconfig that `choice` selects.
///
/// # Errors
/// [`KubeError`].
pub async fn found(choice: &KubeconfigChoice) -> Result<ReadKubeconfig, KubeError> {
    let named = choice.kubeconfig.clone();
    let read = spawn_blocking(move || read(named)).await;
    let read = read.map_err(|error| KubeError::Kubeconfig(error.to_string()))?;
    let Some(mut kubeconfig) = read? else {
        let config = Config::incluster().map_err(|_| {
            KubeError::Kubeconfig(
                "there is none, and this is no pod with a ServiceAccount's token".to_owned(),
            )
        })?;
        return Ok(ReadKubeconfig {
            config,
            context: "this pod's own".to_owned(),
            proxies: Proxies::from_env(),
        });
    };
    let known = || {
        kubeconfig
            .contexts
            .iter()
            .map(|of| of.name.clone())
            .collect()
    };
    let current = kubeconfig.current_context.clone();
    let context = choice
        .context
        .clone()
        .or(current)
        .filter(|name| !name.is_empty());
    let Some(context) = context else {
        return Err(KubeError::NoCurrentContext(known()));
    };
    if !kubeconfig.contexts.iter().any(|of| of.name == context) {
        let (requested, known) = (shortened(&context, MAX_NAME_CHARS), known());
        return Err(KubeError::NoContext { requested, known });
    }
    let named = kubeconfig.contexts.iter().find(|of| of.name == context);
    let named = named.and_then(|of| of.context.clone()).unwrap_or_default();
    let users = kubeconfig.auth_infos.iter_mut();
    let plugin = users
        .filter(|of| Some(&of.name) == named.user.as_ref())
        .find_map(|of| of.auth_info.as_mut()?.exec.as_mut());
    if let Some(plugin) = plugin {
        without_terminal(plugin, io::stdin().is_terminal())?;
    }
    let clusters = kubeconfig.clusters.iter();
    let proxy = clusters
        .filter(|of| of.name == named.cluster)
        .find_map(|of| of.cluster.as_ref()?.proxy_url.clone())
        .filter(|proxy| !proxy.is_empty());
    let options = KubeConfigOptions {
        context: Some(context.clone()),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.map_err(|error| KubeError::of_kubeconfig(&error))?;
    // The dialler reads the environment's proxies itself.
    config.proxy_url = None;
    Ok(ReadKubeconfig {
        config,
        context: shortened(&context, MAX_NAME_CHARS),
        proxies: match proxy {
            Some(proxy) => Proxies::from_text("proxy-url of the kubeconfig", &proxy),
            None => Proxies::from_env(),
        },
    })
}

/// Wraps `plugin` so that its output is cut off at a limit: kube buffers all of it in memory. The exit status is that
/// of the plugin.
pub(super) fn bound_output(plugin: &mut ExecConfig) {
    let Some(command) = plugin.command.take() else {
        return;
    };
    let script = format!(
        r#"exec 4>&1; ended=$({{ {{ "$0" "$@" 3>&- 4>&-; echo $? >&3; }} | head -c {MAX_PLUGIN_OUTPUT} >&4; }} 3>&1); exit "$ended""#
    );
    let own = plugin.args.take().unwrap_or_default();
    let words = ["-c".to_owned(), script, command];
    plugin.command = Some("/bin/sh".to_owned());
    plugin.args = Some(words.into_iter().chain(own).collect());
}

/// Reads the named kubeconfig, or those of `KUBECONFIG`, of which some may be missing. `None`: there is none, and
/// this is a pod.
fn read(named: Option<PathBuf>) -> Result<Option<Kubeconfig>, KubeError> {
    let of = |error| KubeError::of_kubeconfig(&error);
    if let Some(path) = named {
        return Kubeconfig::read_from(path).map(Some).map_err(of);
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let listed = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty());
    let mut paths: Vec<PathBuf> = listed.collect();
    if paths.is_empty() {
        paths.extend(std::env::home_dir().map(|home| home.join(".kube/config")));
    }
    let existing: Vec<_> = paths.iter().filter(|path| path.exists()).collect();
    if existing.is_empty() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Ok(None);
    }
    if existing.is_empty() {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let paths = shortened(&paths.join(" and "), MAX_NAME_CHARS);
        return Err(KubeError::Kubeconfig(format!("{paths} is not there")));
    }
    let all = existing
        .iter()
        .try_fold(Kubeconfig::default(), |all, path| {
            all.merge(Kubeconfig::read_from(path)?)
        });
    all.map(Some).map_err(of)
}

/// Denies the plugin a standard input that is no terminal: that belongs to an editor or a script.
fn without_terminal(plugin: &mut ExecConfig, is_terminal: bool) -> Result<(), KubeError> {
    match plugin.interactive_mode {
        _ if is_terminal => {}
        Some(ExecInteractiveMode::Always) => {
            return Err(KubeError::Plugin {
                command: command(plugin),
                why: "wants a terminal to ask at".to_owned(),
                install: None,
            });
        }
        _ => plugin.interactive_mode = Some(ExecInteractiveMode::Never),
    }
    Ok(())
}

/// Returns the plugin's command without its arguments, which may be secrets.
pub(super) fn command(plugin: &ExecConfig) -> String {
    shortened(
        plugin.command.as_deref().unwrap_or("(none)"),
        MAX_NAME_CHARS,
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::KubeCluster;

    #[test]
    fn credential_plugin_prompts_only_at_a_terminal() {
        let plugin = |mode| ExecConfig {
            command: Some("login".to_owned()),
            args: Some(vec!["s3cret".to_owned()]),
            interactive_mode: mode,
            ..ExecConfig::default()
        };
        for mode in [None, Some(ExecInteractiveMode::IfAvailable)] {
            let mut noninteractive = plugin(mode.clone());
            without_terminal(&mut noninteractive, false).unwrap();
            assert_eq!(
                noninteractive.interactive_mode,
                Some(ExecInteractiveMode::Never)
            );
            let mut interactive_plugin = plugin(mode.clone());
            without_terminal(&mut interactive_plugin, true).unwrap();
            assert_eq!(interactive_plugin.interactive_mode, mode);
        }
        let mut always = plugin(Some(ExecInteractiveMode::Always));
        let error_of = without_terminal(&mut always, false).unwrap_err();
        let expected = "the kubeconfig's credential plugin login wants a terminal to ask at";
        assert_eq!(error_of.to_string(), expected);
    }

    /// Returns the error for a kubeconfig with this `user` and `cluster`.
    async fn error_of(cluster: &str, user: &str) -> KubeError {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: a, user: b}}}}]\nclusters: [{{name: a, cluster: {{{cluster}}}}}]\nusers: [{{name: b, user: {{{user}}}}}]"
        );
        std::fs::write(&path, text).unwrap();
        let choice = KubeconfigChoice {
            kubeconfig: Some(path),
            ..KubeconfigChoice::default()
        };
        KubeCluster::of(choice).await.err().unwrap()
    }

    #[tokio::test]
    async fn insecure_api_server_is_refused() {
        let insecure = "server: 'https://api:6443', insecure-skip-tls-verify: true";
        for cluster in [insecure, "server: 'http://u:s3cret@api'"] {
            let error = error_of(cluster, "token: s3cret").await;
            assert!(matches!(error, KubeError::Unsafe { .. }), "{error}");
            assert!(error.is_misconfigured());
            let all = format!("{error} {error:?} {}", error.hint());
            assert!(!all.contains("s3cret"), "{all}");
        }
    }

    #[tokio::test]
    async fn invalid_kubeconfig_is_reported_without_quotation() {
        let server = "server: 'https://api:6443'";
        for (cluster, user, expected) in [
            ("server: 's3cret s3cret'", "token: a", "no usable server"),
            (
                "server: 'https://api', certificate-authority-data: s3cret",
                "token: a",
                "certificate authority",
            ),
            (server, "client-certificate-data: s3cret", "cannot be read"),
            (server, "auth-provider: {name: s3cret}", "auth-provider"),
            (
                server,
                "tokenFile: /nonexistent/s",
                "/nonexistent/s cannot be read",
            ),
            (
                server,
                "exec: {command: /nonexistent/login, args: [s3cret]}",
                "/nonexistent/login is not there",
            ),
            (
                server,
                "exec: {command: sh, args: [-c, 'exit 3']}",
                "has failed (exit status: 3)",
            ),
            (
                server,
                "exec: {command: 'yes', args: [s3cret]}",
                "yes prints more than 1048576 bytes",
            ),
        ] {
            let error = error_of(cluster, user).await;
            let all = format!("{error} {error:?} {}", error.hint());
            assert!(all.contains(expected), "{all}");
            assert!(!all.contains("s3cret"), "{all}");
        }
    }
}
