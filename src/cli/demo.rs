//! `ray-relay demo`: a cluster to try everything on.

use super::failure::{Exit, Fails, Failure};
use crate::app;
use crate::demo::{DemoArgs, DemoError};
use ray_relay_access::telemetry::logging;
use ray_relay_base::config::{Log, LogFormat};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay demo
      installs Ray for this user alone (once), starts three Ray nodes on this machine, and runs a job whose tasks stop at breakpoints; Ctrl-C removes it all but the installation
  ray-relay demo --ray-address http://127.0.0.1:8265
      the same job on a cluster that exists

It prints what to do next.";

impl Fails for DemoError {
    fn exit(&self) -> Exit {
        match self {
            Self::Relay(app::Error::UnexpectedEnd(_)) => Exit::Defect,
            _ => Exit::Failed,
        }
    }
}

pub(super) async fn run(args: DemoArgs) -> Result<(), Failure> {
    // Its own lines report progress; the relay logs only when something is wrong.
    logging::init(&Log {
        level: "warn".to_owned(),
        format: LogFormat::Text,
    })?;
    Ok(Box::pin(crate::demo::run(args)).await?)
}
