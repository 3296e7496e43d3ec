//! An API server, with the user of a kubeconfig.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::AUTHORIZATION;
use hyper::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tower_service::Service;
use zeroize::Zeroizing;

use super::client::{ApiServer, address};
use super::error::{KubeError, Permission};
use super::kubeconfig::{KubeconfigChoice, ReadKubeconfig, found};
use ray_relay_base::dial::Proxies;
use ray_relay_base::wire::relay_url::is_this_machine;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a credential plugin may take: it may ask the user to log in.
pub(super) const LOGIN_TIMEOUT: Duration = Duration::from_secs(120);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A cluster and the user of a kubeconfig there. The kubeconfig is read again once its credential is rejected.
pub struct KubeCluster {
    choice: KubeconfigChoice,
    context: String,
    namespace: String,
    server: String,
    login: Mutex<Login>,
}

/// A client with the credential of the kubeconfig.
#[derive(Clone)]
struct Login {
    /// Serial number of the login.
    number: u64,
    client: Client,
    /// Returns the `Authorization` header that the client would send.
    echo: Option<Client>,
}

impl KubeCluster {
    /// Reads the kubeconfig and runs its credential plugin. Sends no request.
    ///
    /// # Errors
    /// [`KubeError`].
    pub async fn of(choice: KubeconfigChoice) -> Result<Self, KubeError> {
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
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The namespace to use if none is named.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The API server's address, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends a request to the API server with `call`, and once more with a new credential if the first is rejected.
    ///
    /// # Errors
    /// [`KubeError`], at the deadline at the latest.
    pub(super) async fn ask<T, F>(
        &self,
        permission: &Permission,
        call: impl Fn(Client) -> F,
    ) -> Result<T, KubeError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let number = self.login.lock().await.number;
        match self.once(permission, &call).await {
            Err(KubeError::Unauthorized(_)) => {
                self.renew_after(number).await?;
                self.once(permission, &call).await
            }
            answer => answer,
        }
    }

    async fn once<T, F>(
        &self,
        permission: &Permission,
        call: &impl Fn(Client) -> F,
    ) -> Result<T, KubeError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        // Replacing the credential has a deadline of its own.
        self.authorization().await?;
        let client = self.login.lock().await.client.clone();
        match timeout(ANSWER_TIMEOUT, Box::pin(call(client))).await {
            Ok(answer) => answer.map_err(|error| KubeError::of(&self.server, permission, &error)),
            Err(_) => Err(KubeError::Unreachable {
                server: self.server.clone(),
                cause: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
            }),
        }
    }

    /// Returns the bearer token of the kubeconfig. `None`: it authenticates its user by other means.
    ///
    /// # Errors
    /// [`KubeError`]: its plugin returns no token.
    pub async fn bearer(&self) -> Result<Option<Zeroizing<String>>, KubeError> {
        let header = self.authorization().await?;
        let token = header
            .as_deref()
            .and_then(|header| header.strip_prefix("Bearer "));
        Ok(token.map(|token| Zeroizing::new(token.trim().to_owned())))
    }

    /// Returns the `Authorization` header for the API server, with a credential that is not about to expire.
    async fn authorization(&self) -> Result<Option<Zeroizing<String>>, KubeError> {
        let Some(echo) = self.login.lock().await.echo.clone() else {
            return Ok(None);
        };
        let request = async {
            let request = Request::new(Body::empty());
            let answer = echo.send(request).await;
            answer.map_err(|error| KubeError::before(self.server.clone(), &error))
        };
        let answer = timeout(LOGIN_TIMEOUT, request)
            .await
            .map_err(|_| late())??;
        let header = answer.headers().get(AUTHORIZATION);
        let header = header.and_then(|header| header.to_str().ok());
        Ok(header.map(|header| Zeroizing::new(header.to_owned())))
    }

    /// Reads the kubeconfig and runs its plugin again, after the credential was rejected.
    ///
    /// # Errors
    /// [`KubeError`].
    pub async fn renew(&self) -> Result<(), KubeError> {
        let number = self.login.lock().await.number;
        self.renew_after(number).await
    }

    /// Renews the login unless that has happened since `number`: of several rejected callers one renews, and the
    /// others wait.
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

pub(super) fn late() -> KubeError {
    KubeError::Credential(format!(
        "its credential plugin has not ended within {} minutes",
        LOGIN_TIMEOUT.as_secs() / 60
    ))
}

fn server(config: &Config) -> String {
    let scheme = config.cluster_url.scheme_str().unwrap_or("http");
    format!("{scheme}://{}", address(config))
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
                why: "anyone on the network path could read the traffic",
            });
        }
        let (server, auth_layer) = ApiServer::with_auth_layer(config, proxies).await?;
        let echo = auth_layer
            .map(|auth_layer| ClientBuilder::new(Echo, "").with_layer(&auth_layer).build());
        Ok(Self {
            number,
            client: server.client,
            echo,
        })
    }
}

/// Answers with the request's `Authorization`. kube refreshes a credential behind its layer, and reveals it to no
/// other code.
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
        if let Some(header) = request.headers_mut().remove(AUTHORIZATION) {
            answer.headers_mut().insert(AUTHORIZATION, header);
        }
        std::future::ready(Ok(answer))
    }
}
