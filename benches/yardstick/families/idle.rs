//! Memory of sessions in which nothing happens, and what is left of it when they are gone.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Result;
use crate::harness::client::{Session, Target};
use crate::harness::contest::{Contestant, Family};
use crate::harness::process::open_files;
use crate::harness::scene::{Plan, Scene};
use crate::harness::table::{Goal, Row, Unit};
use crate::harness::yard::Yard;
use crate::stand_in::Size;

/// Until what was needed for a moment only has been given back.
const SETTLED: Duration = Duration::from_secs(2);
/// Until the relay has said goodbye to all workers, and has looked after them.
const GONE: Duration = Duration::from_secs(12);

pub(super) struct Idle {
    pub(super) sessions: usize,
    pub(super) tls: bool,
}

pub(super) struct Open {
    scene: Scene,
    connector: Option<TlsConnector>,
}

/// Held open, and nothing more.
#[expect(dead_code, reason = "a session is kept for its connections alone")]
enum Held {
    Plain(Session),
    Tls(Session<ReadHalf<TlsStream<TcpStream>>, WriteHalf<TlsStream<TcpStream>>>),
}

/// Open files of a process beside the two that it has for each session.
const FILES: u64 = 200;

/// How many sessions this process and those that it starts have open files for.
fn most() -> usize {
    usize::try_from(open_files().saturating_sub(FILES) / 2).unwrap_or(usize::MAX)
}

/// How many sessions at a time are measured.
pub(super) fn sizes(yard: &Yard) -> Vec<usize> {
    let mut sizes = yard.size(vec![1_000, 5_000], vec![50]);
    if yard.full {
        sizes.push(most().min(10_000));
    }
    sizes
}

impl Family for Idle {
    type Open = Open;

    const ONCE: bool = true;

    const CONTESTANTS: &[Contestant] = &Contestant::PROXIES;

    fn rows(&self, _yard: &Yard) -> Vec<Row> {
        let how = if self.tls { ", TLS" } else { "" };
        let most = if self.tls { 20.0 } else { 6.0 };
        let each = Row::new(
            format!("memory of each of {} idle{how}", self.sessions),
            Unit::KIB,
        );
        vec![
            each.goal(Goal::Within(most * 1024.0)),
            Row::new("  of all, given back when they are gone", Unit::PERCENT).difference(),
            Row::new("  resident before", Unit::MIB),
        ]
    }

    async fn open(&self, yard: &Yard, contestant: Contestant) -> Result<Open> {
        let (sessions, most) = (self.sessions, most());
        if sessions > most {
            return Err(format!(
                "{sessions} sessions take more open files than a process may have here, which is enough for {most}: raise `ulimit -n`"
            )
            .into());
        }
        let size = Size {
            workers: self.sessions,
            ..Size::default()
        };
        let mut plan = Plan::new(size);
        plan.tls = self.tls;
        // The list is there, and is seldom to be asked for meanwhile.
        plan.poll = Duration::from_secs(10);
        let scene = Scene::open(yard, contestant, &plan).await?;
        let connector = self.tls.then(|| connector(yard)).transpose()?;
        Ok(Open { scene, connector })
    }

    async fn round(&self, yard: &Yard, open: &mut Open) -> Result<Vec<f64>> {
        sleep(yard.size(SETTLED, SETTLED / 10)).await;
        let before = open.scene.memory()?;
        let mut sessions = Vec::with_capacity(self.sessions);
        for index in 0..self.sessions {
            let target = open.scene.target(index)?;
            sessions.push(hold(&target, open.connector.as_ref()).await?);
        }
        sleep(yard.size(SETTLED, SETTLED / 10)).await;
        let held = open.scene.memory()? - before;
        drop(sessions);
        sleep(yard.size(GONE, SETTLED / 10)).await;
        let left = open.scene.memory()? - before;
        Ok(vec![
            held / self.sessions as f64,
            (held - left) / held,
            before,
        ])
    }
}

async fn hold(target: &Target, connector: Option<&TlsConnector>) -> Result<Held> {
    let Some(connector) = connector else {
        return Ok(Held::Plain(Session::open(target).await?));
    };
    let stream = TcpStream::connect(target.address).await?;
    let name = ServerName::try_from("localhost")?;
    let (answers, requests) = split(connector.connect(name, stream).await?);
    Ok(Held::Tls(Session::attach(answers, requests, target).await?))
}

fn connector(yard: &Yard) -> Result<TlsConnector> {
    let certificate = CertificateDer::from_pem_file(&yard.credentials.certificate)?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
