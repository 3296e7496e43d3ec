//! An API server, as the user of a kubeconfig is known there.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, USER_AGENT};
use hyper::{Request, Response};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tower_service::Service;
use zeroize::Zeroizing;

use super::error::{KubeError, LONGEST, Permission};
use super::kubeconfig::{KubeconfigChoice, ReadKubeconfig, command, found};
use crate::dial::http::{self, HttpClient};
use crate::dial::{Connector, Proxies, STEP};
use crate::wire::relay_url::is_this_machine;
use crate::wire::text::shortened;

/// The deadline of an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a credential plugin may take: it may ask a person to log in.
const LOGIN: Duration = Duration::from_secs(120);

/// How long a connection is kept for the next question.
const IDLE: Duration = Duration::from_secs(60);

/// Largest answer: a page of Services or pods.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// See the module. The kubeconfig is read anew where its credential is not taken any more.
pub(crate) struct KubeCluster {
    choice: KubeconfigChoice,
    context: String,
    namespace: String,
    server: String,
    login: Mutex<Login>,
}

/// A client with the credential of the kubeconfig.
#[derive(Clone)]
struct Login {
    /// Which one it is, by when it was made.
    number: u64,
    client: Client,
    /// Gives back what the client would show as `Authorization`.
    echo: Option<Client>,
}

impl KubeCluster {
    /// Reads the kubeconfig, and runs its credential plugin; asks nothing yet.
    ///
    /// # Errors
    /// [`KubeError`].
    pub(crate) async fn of(choice: KubeconfigChoice) -> Result<Self, KubeError> {
        let ReadKubeconfig {
            config,
            context,
            proxies,
        } = found(&choice).await?;
        let namespace = choice.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let server = server(&config);
        let login = Login::of(config, proxies, &server, 0).await?;
        Ok(Self {
            choice,
            context,
            namespace,
            server,
            login: Mutex::new(login),
        })
    }

    /// The name of the context.
    pub(crate) fn context(&self) -> &str {
        &self.context
    }

    /// The namespace that is meant where none is named.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The API server's address, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Has `call` ask the API server; once more with a new credential, where it does not take the first.
    ///
    /// # Errors
    /// [`KubeError`], at the deadline at the latest.
    pub(super) async fn ask<T, F>(
        &self,
        asked: &Permission,
        call: impl Fn(Client) -> F,
    ) -> Result<T, KubeError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let number = self.login.lock().await.number;
        match self.once(asked, &call).await {
            Err(KubeError::Unauthorized(_)) => {
                self.renew_after(number).await?;
                self.once(asked, &call).await
            }
            answer => answer,
        }
    }

    async fn once<T, F>(
        &self,
        asked: &Permission,
        call: &impl Fn(Client) -> F,
    ) -> Result<T, KubeError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        // Where the credential has to be replaced first, that takes its own time.
        self.authorization().await?;
        let client = self.login.lock().await.client.clone();
        match timeout(PATIENCE, Box::pin(call(client))).await {
            Ok(answer) => answer.map_err(|error| KubeError::of(&self.server, asked, &error)),
            Err(_) => Err(KubeError::Unreachable {
                server: self.server.clone(),
                cause: format!("no answer within {} s", PATIENCE.as_secs()),
            }),
        }
    }

    /// The bearer token that the kubeconfig has for the API server; `None`: it knows its user by something else.
    ///
    /// # Errors
    /// [`KubeError`]: its plugin gives none.
    pub(crate) async fn bearer(&self) -> Result<Option<Zeroizing<String>>, KubeError> {
        let shown = self.authorization().await?;
        let token = shown
            .as_deref()
            .and_then(|shown| shown.strip_prefix("Bearer "));
        Ok(token.map(|token| Zeroizing::new(token.trim().to_owned())))
    }

    /// What is shown to the API server, by a credential that is not about to expire.
    async fn authorization(&self) -> Result<Option<Zeroizing<String>>, KubeError> {
        let Some(echo) = self.login.lock().await.echo.clone() else {
            return Ok(None);
        };
        let asked = async {
            let request = Request::new(Body::empty());
            let answer = echo.send(request).await;
            answer.map_err(|error| KubeError::before(self.server.clone(), &error))
        };
        let answer = timeout(LOGIN, asked).await.map_err(|_| late())??;
        let shown = answer.headers().get(AUTHORIZATION);
        let shown = shown.and_then(|shown| shown.to_str().ok());
        Ok(shown.map(|shown| Zeroizing::new(shown.to_owned())))
    }

    /// Reads the kubeconfig, and has its plugin give a credential, anew: the last was not taken.
    ///
    /// # Errors
    /// [`KubeError`].
    pub(crate) async fn renew(&self) -> Result<(), KubeError> {
        let number = self.login.lock().await.number;
        self.renew_after(number).await
    }

    /// The same where the last is that one: of several that were refused one renews it, and the others wait for that.
    async fn renew_after(&self, number: u64) -> Result<(), KubeError> {
        let mut login = self.login.lock().await;
        if login.number == number {
            let ReadKubeconfig {
                config, proxies, ..
            } = found(&self.choice).await?;
            *login = Login::of(config, proxies, &self.server, number + 1).await?;
        }
        Ok(())
    }
}

fn late() -> KubeError {
    KubeError::Credential(format!(
        "its credential plugin has not ended within {} minutes",
        LOGIN.as_secs() / 60
    ))
}

fn server(config: &Config) -> String {
    let uri = &config.cluster_url;
    let scheme = uri.scheme_str().unwrap_or("http");
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    // What stands before an @ is a password.
    let host = authority.rsplit('@').next().unwrap_or_default();
    shortened(&format!("{scheme}://{host}"), LONGEST)
}

impl Login {
    async fn of(
        config: Config,
        proxies: Proxies,
        server: &str,
        number: u64,
    ) -> Result<Self, KubeError> {
        if config.accept_invalid_certs {
            return Err(KubeError::Unsafe {
                server: server.to_owned(),
                why: "its cluster in the kubeconfig has insecure-skip-tls-verify",
            });
        }
        let uri = &config.cluster_url;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if uri.scheme_str() != Some("https") && !is_this_machine(host) {
            return Err(KubeError::Unsafe {
                server: server.to_owned(),
                why: "everybody on the way could read along",
            });
        }
        let plugin = config.auth_info.exec.as_ref();
        let plugin = plugin.map(|plugin| {
            let install = plugin.install_hint.as_deref();
            (
                command(plugin),
                install.map(|text| shortened(text, LONGEST)),
            )
        });
        let of_credential = |error: &kube::Error| match error {
            kube::Error::Auth(error) => KubeError::of_credential(error, plugin.clone()),
            kube::Error::InferKubeconfig(error) => KubeError::of_kubeconfig(error),
            _ => KubeError::Credential(
                "its client certificate, key or certificate authority is of no use".to_owned(),
            ),
        };
        let preparing = config.clone();
        // Plugins are run here, and wait for a person.
        let prepared = spawn_blocking(move || {
            let shown = preparing.auth_layer()?;
            let mut preparing = preparing;
            if shown.is_some() {
                // It has given a token, and is not to be run once more for a certificate.
                preparing.auth_info.exec = None;
            }
            Ok::<_, kube::Error>((shown, preparing.rustls_client_config()?))
        });
        let prepared = timeout(LOGIN, prepared).await.map_err(|_| late())?;
        let prepared = prepared.map_err(|error| KubeError::Credential(error.to_string()))?;
        let (shown, tls) = prepared.map_err(|error| of_credential(&error))?;
        let mut connector = Connector::new(tls, STEP, proxies);
        if let Some(name) = &config.tls_server_name {
            let name = ServerName::try_from(name.clone());
            connector = connector.named(name.map_err(|_| {
                KubeError::Kubeconfig("tls-server-name of its cluster is no name".to_owned())
            })?);
        }
        let bounded = Bounded(http::client(connector, IDLE));
        let headers = config.extra_headers_layer();
        let headers = headers.map_err(|error| of_credential(&error))?;
        let base = config.base_uri_layer();
        let client = ClientBuilder::new(bounded, config.default_namespace.clone());
        let client = client.with_layer(&headers);
        Ok(match shown {
            Some(shown) => Self {
                number,
                client: client.with_layer(&shown).with_layer(&base).build(),
                echo: Some(ClientBuilder::new(Echo, "").with_layer(&shown).build()),
            },
            None => Self {
                number,
                client: client.with_layer(&base).build(),
                echo: None,
            },
        })
    }
}

/// HTTP by the one dialler, with answers that are not larger than [`MAX_ANSWER`].
#[derive(Clone)]
struct Bounded(HttpClient<Body>);

impl Service<Request<Body>> for Bounded {
    type Response = Response<Limited<Incoming>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().insert(USER_AGENT, http::USER_AGENT);
        let answer = self.0.request(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Limited::new(body, MAX_ANSWER))) })
    }
}

/// Answers with what was shown. kube keeps a credential fresh behind its layer, and tells it to nobody else.
#[derive(Clone)]
struct Echo;

impl Service<Request<Body>> for Echo {
    type Response = Response<Empty<Bytes>>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut answer = Response::new(Empty::new());
        if let Some(shown) = request.headers_mut().remove(AUTHORIZATION) {
            answer.headers_mut().insert(AUTHORIZATION, shown);
        }
        std::future::ready(Ok(answer))
    }
}
