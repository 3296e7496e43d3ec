//! A stand-in for an API server with TLS. It checks every field of a request, and answers as configured.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The relay's own token for the API server.
pub(super) const OWN_TOKEN: &str = "own-token-of-the-relay";

pub(super) const NAME: &str = "system:serviceaccount:ml:alice";

/// The kind of answer to reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Normal,
    /// The token is unknown.
    Refuse,
    /// The answer names no audience.
    NoAudience,
    /// The answer is for another audience.
    OtherAudience,
    /// A failure with this status and a message that quotes the request.
    Status(u16),
    Slow,
    Huge,
    /// The request, followed by other bytes.
    NotJson,
    /// A review of another kind.
    OtherKind,
    NoStatus,
    NoName,
    /// Both allowed and denied.
    Both,
}

pub(super) struct State {
    pub(super) tokens: Mode,
    pub(super) access: Mode,
    /// `cluster/verb`; for another namespace than the relay's, `namespace:cluster/verb`.
    pub(super) allowed: HashSet<&'static str>,
    /// Requests that should not have been sent.
    pub(super) faults: Vec<String>,
    pub(super) token_reviews: usize,
    /// Each access review, written as in `allowed`.
    pub(super) access_reviews: Vec<String>,
    pub(super) token: String,
}

#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) ca: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub(super) async fn start(token: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            ca: certificate.pem(),
            state: Arc::new(Mutex::new(State {
                tokens: Mode::Normal,
                access: Mode::Normal,
                allowed: HashSet::new(),
                faults: Vec::new(),
                token_reviews: 0,
                access_reviews: Vec::new(),
                token: token.to_owned(),
            })),
        };
        let shared = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, server) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(|request| server.answer(request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        server
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Writes the files of the CA and the relay's own token.
    pub(super) fn files(&self, dir: &Path) -> ray_relay_base::config::Kubernetes {
        std::fs::write(dir.join("ca.pem"), &self.ca).unwrap();
        std::fs::write(dir.join("token"), OWN_TOKEN).unwrap();
        ray_relay_base::config::Kubernetes {
            enabled: true,
            audiences: vec!["ray-relay".to_owned(), "other".to_owned()],
            namespace: Some("ray".to_owned()),
            api_server: Some(format!("https://{}", self.address)),
            ca_file: Some(dir.join("ca.pem")),
            token_file: Some(dir.join("token")),
            ..ray_relay_base::config::Kubernetes::default()
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = |name: &str| Some(head.headers.get(name)?.to_str().unwrap());
        let posted: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut faults = Vec::new();
        let mut expect = |field: &str, actual: Value, expected: Value| {
            if actual != expected {
                faults.push(format!("{field}: {actual} instead of {expected}"));
            }
        };
        expect("method", json!(head.method == Method::POST), json!(true));
        expect("query", json!(head.uri.query()), Value::Null);
        let bearer = format!("Bearer {OWN_TOKEN}");
        expect("authorization", json!(text("authorization")), json!(bearer));
        for header in ["content-type", "accept"] {
            expect(header, json!(text(header)), json!("application/json"));
        }
        let path = head.uri.path();
        let (mode, answer) = match path {
            "/apis/authentication.k8s.io/v1/tokenreviews" => {
                let (mode, token) = {
                    let mut state = self.state();
                    state.token_reviews += 1;
                    (state.tokens, state.token.clone())
                };
                let spec = json!({"token": token, "audiences": ["ray-relay", "other"]});
                let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": spec});
                expect("review", posted.clone(), review);
                (mode, token_status(mode))
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let attributes = &posted["spec"]["resourceAttributes"];
                let attribute = |key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
                let checked = format!("{}/{}", attribute("name"), attribute("verb"));
                let checked = match &*attribute("namespace") {
                    "ray" => checked,
                    other => format!("{other}:{checked}"),
                };
                let (mode, allowed) = {
                    let mut state = self.state();
                    state.access_reviews.push(checked.clone());
                    (state.access, state.allowed.contains(&*checked))
                };
                let mut spec = json!({
                    "user": NAME,
                    "uid": "u-1",
                    "groups": ["system:authenticated", "system:serviceaccounts"],
                    "extra": {"authentication.kubernetes.io/pod-name": ["p"]},
                    "resourceAttributes": {
                        "group": "ray-relay.dev", "resource": "breakpoints", "namespace": attribute("namespace"),
                        "verb": attribute("verb"), "name": attribute("name"),
                    },
                });
                if attributes["name"].is_null() {
                    // Remove all of them: an empty name would be requested otherwise.
                    let checked = spec["resourceAttributes"].as_object_mut();
                    checked.unwrap().remove("name");
                }
                let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec});
                expect("review", posted.clone(), review);
                let status = match mode {
                    Mode::Both => json!({"allowed": true, "denied": true}),
                    _ => json!({"allowed": allowed, "reason": "RBAC"}),
                };
                (mode, status)
            }
            other => {
                expect("path", json!(other), json!("a review"));
                (Mode::Status(404), Value::Null)
            }
        };
        self.state().faults.extend(faults);
        let mut response = posted;
        response["status"] = answer;
        let (status, text) = match mode {
            Mode::Status(status) => {
                let quoted = format!("cannot handle {}", String::from_utf8_lossy(&body));
                let answer = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": quoted});
                (status, answer.to_string())
            }
            Mode::Slow => std::future::pending().await,
            Mode::Huge => {
                response["padding"] = json!("x".repeat(300 * 1024));
                (201, response.to_string())
            }
            Mode::NotJson => (201, format!("{}<html>", String::from_utf8_lossy(&body))),
            Mode::OtherKind => {
                response["kind"] = json!("SelfSubjectReview");
                (201, response.to_string())
            }
            Mode::NoStatus => {
                response.as_object_mut().unwrap().remove("status");
                (201, response.to_string())
            }
            _ => (201, response.to_string()),
        };
        let answer = Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(text);
        Ok(answer.unwrap())
    }
}

fn token_status(mode: Mode) -> Value {
    let name = match mode {
        Mode::NoName => "a\nb",
        _ => NAME,
    };
    let audiences = match mode {
        Mode::NoAudience => Value::Null,
        Mode::OtherAudience => json!(["https://kubernetes.default.svc"]),
        _ => json!(["ray-relay"]),
    };
    match mode {
        Mode::Refuse => json!({"authenticated": false, "error": "no such token", "user": {}}),
        _ => json!({
            "authenticated": true,
            "audiences": audiences,
            "user": {
                "username": name,
                "uid": "u-1",
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/pod-name": ["p"]},
            },
        }),
    }
}
