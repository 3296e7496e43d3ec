//! Composition: builds the parts, binds, starts, and ends them in order.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::audit::{self, Audit};
use crate::config::{Advertise, Config, TlsMode};
use crate::connection::admission::Admission;
use crate::context::Context;
use crate::identity::{Authenticator, Issuers, SetupError};
use crate::listener::{self, BindError};
use crate::registry::Registry;
use crate::release;
use crate::shutdown::{Shutdown, Signals};
use crate::telemetry::Metrics;
use crate::tls::{Tls, Unusable};

/// Why the relay did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is not to be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificate, its key or what client certificates are held to.
    #[error("{}", sentences(.0))]
    Tls(Vec<Unusable>),
    /// Keys, policy or revocations cannot be used.
    #[error(transparent)]
    Identity(#[from] SetupError),
    /// A part could not be built from the configuration.
    #[error("{0}")]
    Setup(String),
    /// What is done here could not be put on record.
    #[error(transparent)]
    Audit(#[from] audit::OpenError),
    /// The system refuses a signal handler.
    #[error("cannot wait for signals: {0}")]
    Signal(std::io::Error),
}

fn sentences(faults: &[Unusable]) -> String {
    let sentences: Vec<String> = faults.iter().map(ToString::to_string).collect();
    sentences.join("\n  ")
}

/// How long the debuggers of workers may take to be left, when the relay drains and when it is to end at once: one that is
/// cut off in the middle of its attach leaves its task waiting for ever.
const WORKERS_LEFT: Duration = Duration::from_secs(40);
const AT_ONCE: Duration = Duration::from_secs(5);

/// How long connections that have nothing to wait for may take to close.
const GOODBYE: Duration = Duration::from_secs(1);

/// A relay that runs. It ends by [`Running::drain`]; dropping it leaves its tasks to the runtime.
pub struct Running {
    context: Arc<Context>,
    address: SocketAddr,
    /// Reads keys and revocations until the last session has ended, so draining must not wait for it.
    _keeping: AbortOnDropHandle<()>,
}

/// Builds and starts a relay.
///
/// # Errors
/// [`Error::Bind`], [`Error::Tls`], [`Error::Identity`], [`Error::Setup`].
pub async fn start(config: Config) -> Result<Running, Error> {
    let config = Arc::new(config);
    let shutdown = Shutdown::default();
    let metrics = Metrics::new().map_err(|why| Error::Setup(why.to_string()))?;
    let registry = Registry::new(&config.clusters, &config.registry)
        .map_err(|why| Error::Setup(why.to_string()))?;
    let tls = Tls::new(&config.tls).map_err(Error::Tls)?;
    let listener = listener::bind(config.listen.address)?;
    let address = listener.local_addr().map_err(|source| BindError {
        address: config.listen.address,
        source,
    })?;
    let extra = match &config.advertise {
        Advertise::Ports(ports) => ports
            .clone()
            .map(|port| Ok((port, bind_port(address.ip(), port)?)))
            .collect(),
        Advertise::Single | Advertise::Host(_) => Ok(Vec::new()),
    };
    let extra: Vec<_> = extra.map_err(Error::Bind)?;
    registry.observe(metrics.clone());
    let issuers = Issuers::from_config(&config).await?;
    let auth = Authenticator::from_config(&config.auth, issuers)?;
    let audit = Audit::open(&config.audit, metrics.clone())?;
    let context = Arc::new(Context::new(
        config,
        auth.clone(),
        audit.clone(),
        registry.clone(),
        metrics,
        address.port(),
        shutdown.clone(),
    ));
    context.recording.prepare().map_err(Error::Setup)?;
    if context.config.release.after.is_some() {
        let until = shutdown.drain.clone();
        shutdown
            .tasks
            .spawn(release::auto::run(context.clone(), until));
    }
    let admission = Admission::new(context.config.listen.max_connections);
    shutdown
        .tasks
        .spawn(async move { registry.run(shutdown.closed.clone()).await });
    let tasks = &context.shutdown.tasks;
    let until = context.shutdown.abort.clone();
    let keeping = tokio::spawn(async move { auth.run(until).await });
    let until = context.shutdown.closed.clone();
    tasks.spawn(tls.clone().run(context.metrics.clone(), until));
    let until = context.shutdown.closed.clone();
    tasks.spawn(async move { audit.run(until).await });
    tasks.spawn(listener::run(
        listener,
        context.clone(),
        tls.clone(),
        admission.clone(),
        None,
    ));
    for (port, listener) in extra {
        tasks.spawn(listener::run(
            listener,
            context.clone(),
            tls.clone(),
            admission.clone(),
            Some(port),
        ));
    }
    Ok(Running {
        context,
        address,
        _keeping: AbortOnDropHandle::new(keeping),
    })
}

fn bind_port(ip: IpAddr, port: u16) -> Result<tokio::net::TcpListener, BindError> {
    listener::bind(SocketAddr::new(ip, port))
}

impl Running {
    /// Where it listens, the port known also where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Its list of breakpoints.
    pub fn registry(&self) -> &Registry {
        &self.context.registry
    }

    /// Tells the sessions, ends each as soon as nothing is done in it, and waits for them, and for requests in progress,
    /// for `listen.drain_timeout`; then ends what is left. Meanwhile whoever comes is answered: lists as ever, an attach
    /// with a sentence. Cancelling it cuts the wait short; call [`Running::abort`] then.
    pub async fn drain(&self) {
        let shutdown = &self.context.shutdown;
        let requests = &self.context.requests;
        shutdown.drain.cancel();
        shutdown.busy.close();
        requests.close();
        let done = async { tokio::join!(shutdown.busy.wait(), requests.wait()) };
        if timeout(self.context.config.listen.drain_timeout, done)
            .await
            .is_err()
        {
            warn!(
                sessions = self.context.sessions.len(),
                "ending the sessions that are left"
            );
        }
        shutdown.closed.cancel();
        shutdown.tasks.close();
        // For last words that are under way.
        let _ = timeout(GOODBYE, shutdown.tasks.wait()).await;
        self.end(WORKERS_LEFT).await;
    }

    /// Ends everything now; the sessions have a moment to tell their clients, and to leave their workers in order.
    pub async fn abort(&self) {
        self.end(AT_ONCE).await;
    }

    async fn end(&self, patience: Duration) {
        let shutdown = &self.context.shutdown;
        shutdown.drain.cancel();
        shutdown.closed.cancel();
        shutdown.abort.cancel();
        shutdown.tasks.close();
        if timeout(patience, shutdown.tasks.wait()).await.is_err() {
            warn!(
                "a worker's debugger did not answer while it was left: its task may need `release --force`"
            );
        }
        // After the sessions: their ends are on record.
        self.context.audit.close().await;
    }
}

/// Raises the limit of open files as far as the system lets: a session takes two, and connections that were given up
/// take theirs until they are gone.
fn allow_descriptors(connections: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let raised = setrlimit(Resource::Nofile, limit);
    let wanted = u64::try_from(2 * connections + 512).unwrap_or(u64::MAX);
    let there = getrlimit(Resource::Nofile).current;
    if let Some(there) = there.filter(|there| *there < wanted) {
        warn!(
            there,
            wanted,
            raised = raised.is_ok(),
            "listen.max_connections may need more open files than this process may have: raise `ulimit -n` (LimitNOFILE=), or lower it"
        );
    }
}

/// Runs a relay until SIGTERM or Ctrl-C, drains, and aborts at the second one.
///
/// # Errors
/// [`Error`].
pub async fn run(config: Config) -> Result<(), Error> {
    let mut signals = Signals::new().map_err(Error::Signal)?;
    allow_descriptors(config.listen.max_connections);
    let relay = start(config).await?;
    let config = &relay.context.config;
    for cluster in &config.clusters {
        info!(
            cluster = cluster.name,
            head = cluster.ray_address,
            "watching"
        );
    }
    let reachable = !relay.address.ip().is_loopback();
    match relay.context.auth.summary() {
        Some(by) => info!(by, "clients are authenticated"),
        None if reachable => warn!(
            "nobody is authenticated, and {} can be reached from other machines: whoever connects runs code in the cluster",
            relay.address
        ),
        None => info!(
            "nobody is authenticated: whoever reaches this machine's loopback address is served"
        ),
    }
    if reachable && relay.context.auth.is_on() && config.tls.mode != TlsMode::Required {
        warn!(
            "tokens travel in clear to {}: whoever listens on the way can use them",
            relay.address
        );
    }
    info!(address = %relay.address, "listening");
    signals.next().await;
    info!(
        sessions = relay.context.sessions.len(),
        "draining; a second signal ends everything at once"
    );
    tokio::select! {
        () = relay.drain() => {}
        () = signals.next() => relay.abort().await,
    }
    info!("ended");
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Auth;
    use crate::identity::Generated;
    use crate::identity::keys::Algorithm;

    #[tokio::test]
    async fn without_sessions_draining_takes_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("relay.key");
        let secret = Generated::new(Algorithm::Hs256).unwrap().private;
        std::fs::write(&key, &*secret).unwrap();
        let mut config = Config {
            auth: Auth {
                keys: vec![key],
                ..Auth::default()
            },
            ..Config::default()
        };
        config.listen.address.set_port(0);
        // Nothing listens there.
        config.clusters[0].ray_address = "http://127.0.0.1:9".to_owned();
        let relay = start(config).await.unwrap();
        assert!(relay.context.auth.is_on());
        timeout(Duration::from_secs(10), relay.drain())
            .await
            .unwrap();
    }
}
