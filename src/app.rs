//! Composition: builds the parts, binds, starts, supervises them, and ends them in order.

mod descriptors;
mod essential;
mod restored;
pub mod validate;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;
use tracing::{error, info, warn};

pub(crate) use self::descriptors::raise as raise_open_files;
pub use self::essential::UnexpectedEnd;

use self::essential::Essential;
use crate::discovery::Discovery;
use crate::listener::{self, BindError};
use ray_relay_access::audit::{self, Audit};
use ray_relay_access::connection::admission::Admission;
use ray_relay_access::identity::{Authenticator, Issuers, SetupError};
use ray_relay_access::telemetry::Metrics;
use ray_relay_access::telemetry::traces::Traces;
use ray_relay_access::tls::Tls;
use ray_relay_base::config::{Advertise, Config, Fault, TlsMode};
use ray_relay_base::shutdown::{Shutdown, Signals};
use ray_relay_base::wire::passed_descriptors::PassedDescriptors;
use ray_relay_base::wire::turn;
use ray_relay_debugger::keeper::{self, Keeper};
use ray_relay_http::http::running::watch;
use ray_relay_http::notice::Notices;
use ray_relay_ray::ray::registry::Registry;
use ray_relay_session::context::Context;
use ray_relay_session::release;

/// Why the relay did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The relay cannot listen on the port.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificate, its key or the client certificate authorities are invalid.
    #[error("{}", sentences(.0))]
    Tls(Vec<Fault>),
    /// Keys, policy or revocations are invalid.
    #[error(transparent)]
    Identity(#[from] SetupError),
    /// A part could not be built from the configuration.
    #[error("{0}")]
    Setup(String),
    /// The service manager passed a listening socket that the configuration does not use.
    #[error(
        "the service manager passed a socket that listens on {unused}, and listen.address is {configured}: give both the same address, with ListenStream= of the .socket unit or listen.address"
    )]
    UnusedSocket {
        /// The address of the socket.
        unused: SocketAddr,
        /// The configured address.
        configured: SocketAddr,
    },
    /// Sessions are to be kept, and no keeper is available.
    #[error(transparent)]
    Keeper(#[from] keeper::Error),
    /// The audit log cannot be opened.
    #[error(transparent)]
    Audit(#[from] audit::OpenError),
    /// The system refuses a signal handler.
    #[error("cannot wait for signals: {0}")]
    Signal(std::io::Error),
    /// An essential task ended while the relay ran.
    #[error(transparent)]
    UnexpectedEnd(#[from] UnexpectedEnd),
}

fn sentences(faults: &[Fault]) -> String {
    let sentences: Vec<String> = faults.iter().map(ToString::to_string).collect();
    sentences.join("\n  ")
}

/// Time limits for detaching from the debuggers of workers, for draining and for an immediate shutdown. A debugger that
/// is cut off in the middle of its attach leaves its task waiting for ever.
const DETACH_TIMEOUT: Duration = Duration::from_secs(40);
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for connections with nothing in progress to close.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A running relay. [`Running::drain`] ends it. Dropping it closes its port, and leaves its sessions to the runtime.
pub struct Running {
    context: Arc<Context>,
    address: SocketAddr,
    essential: Essential,
}

/// Builds and starts a relay.
///
/// # Errors
/// [`Error::Bind`], [`Error::Tls`], [`Error::Identity`], [`Error::Setup`].
pub async fn start(config: Config) -> Result<Running, Error> {
    let config = Arc::new(config);
    let metrics = Metrics::new().map_err(|why| Error::Setup(why.to_string()))?;
    let registry = Registry::new(&config.clusters, &config.registry)
        .map_err(|why| Error::Setup(why.to_string()))?;
    let tls = Tls::new(&config.tls).map_err(Error::Tls)?;
    let issuers = Issuers::from_config(&config, registry.watch()).await?;
    let answers_again = issuers.answers_again();
    let auth = Authenticator::from_config(&config.auth, issuers)?;
    let notices = Notices::new(&config.notice).map_err(Error::Setup)?;
    let discovery = Discovery::from_config(&config, answers_again).await?;
    let mut passed = PassedDescriptors::take();
    let opened = Keeper::open(config.listen.keeper.as_deref(), &mut passed).await?;
    let (address, listeners) = bind(&config, &mut passed)?;
    registry.observe(metrics.clone());
    registry.time_collectives(&config.release);
    let traces = Traces::new(&config.telemetry, metrics.clone()).map_err(Error::Setup)?;
    let audit = Audit::open(&config.audit, metrics.clone())?;
    let mut context = Context::new(
        config,
        auth,
        audit,
        registry,
        metrics,
        address.port(),
        Shutdown::default(),
    );
    context.traces = traces;
    let inherited = match opened {
        Some((keeper, inherited)) => {
            context.keeper = Some(keeper);
            inherited
        }
        None => Vec::new(),
    };
    let context = Arc::new(context);
    context.recording.prepare().map_err(Error::Setup)?;
    let admission = Admission::new(context.config.listen.max_connections, &context.memory);
    let mut essential = start_essential(&context, &tls, notices);
    if let Some(discovery) = discovery {
        let (registry, closed) = (context.registry.clone(), context.shutdown.closed.clone());
        let run = context
            .shutdown
            .tasks
            .track_future(discovery.run(registry, closed));
        essential.spawn("the discovery of clusters", run);
    }
    // Connections wait in the kernel's queue until sessions of the previous process are parked here.
    restored::run(&context, inherited, &mut essential).await;
    for (port, listener) in listeners {
        let (serving, tls) = (context.clone(), tls.clone());
        let run = listener::run(listener, serving, tls, admission.clone(), port);
        essential.spawn("the listener", context.shutdown.tasks.track_future(run));
    }
    Ok(Running {
        context,
        address,
        essential,
    })
}

/// A listening socket, with the port that it advertises if it belongs to one breakpoint.
type AdvertisedListener = (Option<u16>, TcpListener);

/// Binds every address of the configuration, or uses the socket that the service manager passed for it. Returns the
/// main address, with the actual port if 0 was configured.
fn bind(
    config: &Config,
    passed: &mut PassedDescriptors,
) -> Result<(SocketAddr, Vec<AdvertisedListener>), Error> {
    let configured = config.listen.address;
    let main = listener::bind(configured, passed)?;
    let address = main.local_addr().map_err(|source| BindError {
        address: configured,
        source,
    })?;
    let mut listeners = vec![(None, main)];
    if let Advertise::Ports(ports) = &config.advertise {
        for port in ports.clone() {
            let configured = SocketAddr::new(address.ip(), port);
            listeners.push((Some(port), listener::bind(configured, passed)?));
        }
    }
    match passed.unused_listener() {
        Some(unused) => Err(Error::UnusedSocket { unused, configured }),
        None => Ok((address, listeners)),
    }
}

/// Starts the tasks that run for as long as the relay does.
fn start_essential(context: &Arc<Context>, tls: &Arc<Tls>, notices: Option<Notices>) -> Essential {
    let Shutdown {
        drain,
        closed,
        abort,
        tasks,
        ..
    } = context.shutdown.clone();
    let mut essential = Essential::new(drain.clone());
    // Not tracked: sessions need turns until the last has ended.
    essential.spawn("the turns of sessions", turn::serve());
    if let Some(notices) = notices {
        let run = notices.run(Arc::clone(context));
        essential.spawn("the notices", tasks.track_future(run));
    }
    if watch::is_wanted(&context.config) {
        let run = watch::run(Arc::clone(context));
        essential.spawn("the watch of running jobs", tasks.track_future(run));
    }
    if context.config.release.releases() {
        let run = release::auto::run(context.clone(), drain);
        essential.spawn(
            "the release of forgotten breakpoints",
            tasks.track_future(run),
        );
    }
    let (registry, until) = (context.registry.clone(), closed.clone());
    let run = async move { registry.run(until).await };
    essential.spawn("the registry", tasks.track_future(run));
    if let Some(traces) = context.traces.clone() {
        // The last sessions end after all that is closed.
        let run = traces.run(abort.clone());
        essential.spawn("the traces", tasks.track_future(run));
    }
    let auth = context.auth.clone();
    // Not tracked: it reads keys and revocations until the last session has ended, so draining must not wait for it.
    essential.spawn("the check of keys and revocations", async move {
        auth.run(abort).await;
    });
    let run = tls.clone().run(context.metrics.clone(), closed.clone());
    essential.spawn("the check of TLS files", tasks.track_future(run));
    let (rows, until) = (context.shown.rows.clone(), closed.clone());
    let run = async move { rows.run(until).await };
    essential.spawn("the upkeep of lists", tasks.track_future(run));
    let (agents, until) = (context.peers.agents.clone(), closed.clone());
    let run = async move { agents.share(until).await };
    essential.spawn("what relays share", tasks.track_future(run));
    let run = listener::run_links(context.clone());
    essential.spawn("the links of people", tasks.track_future(run));
    let audit = context.audit.clone();
    let run = async move { audit.run(closed).await };
    essential.spawn("the audit log", tasks.track_future(run));
    essential
}

impl Running {
    /// The address that the relay listens on, with the actual port if 0 was configured.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The relay's registry of breakpoints.
    pub fn registry(&self) -> &Registry {
        &self.context.registry
    }

    /// Resolves as soon as an essential task has ended unexpectedly; call [`Running::abort`] then. Never resolves once
    /// the relay is being shut down. Cancel safe.
    pub async fn failed(&mut self) -> UnexpectedEnd {
        self.essential.failed().await
    }

    /// Drains: notifies the sessions, and ends each as soon as it is idle. Waits for them, and for requests in
    /// progress, for `listen.drain_timeout`; then ends the rest. Meanwhile new clients are answered: lists as usual, an
    /// attach with a sentence. Cancelling it cuts the wait short; call [`Running::abort`] then.
    pub async fn drain(&self) {
        let drain_timeout = self.context.config.listen.drain_timeout;
        let shutdown = &self.context.shutdown;
        let requests = &self.context.requests;
        shutdown.drain.cancel();
        shutdown.busy.close();
        requests.close();
        let done = async { tokio::join!(shutdown.busy.wait(), requests.wait()) };
        if timeout(drain_timeout, done).await.is_err() {
            warn!(
                sessions = self.context.sessions.table.len(),
                "ending the sessions that are left"
            );
        }
        shutdown.closed.cancel();
        shutdown.tasks.close();
        // Time for final output in flight.
        let _ = timeout(DISCONNECT_TIMEOUT, shutdown.tasks.wait()).await;
        self.end(DETACH_TIMEOUT).await;
    }

    /// Ends everything now. The sessions have a moment to notify their clients, and to detach from their workers in
    /// order.
    pub async fn abort(&self) {
        self.end(ABORT_TIMEOUT).await;
    }

    async fn end(&self, time_limit: Duration) {
        let shutdown = &self.context.shutdown;
        shutdown.drain.cancel();
        shutdown.closed.cancel();
        shutdown.abort.cancel();
        shutdown.tasks.close();
        if timeout(time_limit, shutdown.tasks.wait()).await.is_err() {
            warn!(
                "a worker's debugger did not answer the detach: its task may need `release --force`"
            );
        }
        // After the sessions, so that their ends are audited.
        self.context.audit.close().await;
    }
}

/// Runs a relay until SIGTERM or Ctrl-C, then drains. A second signal, or the end of an essential task, aborts it.
///
/// # Errors
/// [`Error`].
pub async fn run(mut config: Config) -> Result<(), Error> {
    let mut signals = Signals::new().map_err(Error::Signal)?;
    descriptors::fit(&mut config);
    let mut relay = start(config).await?;
    let config = &relay.context.config;
    info!("memory: {}", config.memory().sentence());
    for cluster in &config.clusters {
        info!(
            cluster = cluster.name,
            head = cluster.ray_address,
            "watching"
        );
    }
    if config.discovery.kubernetes {
        info!("discovering RayClusters in Kubernetes");
    }
    let reachable = !relay.address.ip().is_loopback();
    match relay.context.auth.summary() {
        Some(by) => info!(by, "clients are authenticated"),
        None if reachable => warn!(
            "authentication is off, and other machines can reach {}: every client can run code in the cluster",
            relay.address
        ),
        None => info!(
            "authentication is off: every client that reaches this machine's loopback address is served"
        ),
    }
    if reachable && relay.context.auth.is_on() && config.tls.mode != TlsMode::Required {
        warn!(
            "tokens travel in clear to {}: anyone on the network path can use them",
            relay.address
        );
    }
    info!(address = %relay.address, "listening");
    let unexpected_end = tokio::select! {
        () = signals.next() => None,
        unexpected_end = relay.failed() => Some(unexpected_end),
    };
    if let Some(unexpected_end) = unexpected_end {
        // Logged before the workers are detached, which may take a moment.
        error!(
            part = unexpected_end.task,
            "an essential task has ended: shutting down"
        );
        relay.abort().await;
        return Err(unexpected_end.into());
    }
    info!(
        sessions = relay.context.sessions.table.len(),
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
mod tests;
