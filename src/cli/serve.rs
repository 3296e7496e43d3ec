//! `ray-relay serve`: the relay itself.

use super::failure::{Exit, Fails, Failure};
use crate::app::{self, validate};
use ray_relay_access::telemetry::logging;
use ray_relay_base::config::{Flags, Sources};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay serve
      the Ray head on this machine, on 127.0.0.1:5678
  ray-relay serve --ray-address http://raycluster-head-svc:8265
      from inside Kubernetes; then `kubectl port-forward svc/ray-relay 5678` on a laptop
  ray-relay serve --ray-address train=http://10.0.0.2 --ray-address serve=http://10.0.0.3
      two clusters; the first one's dashboard is at /, the second's at /relay/clusters/serve/

Every flag is also a key of the configuration file and a variable RAY_RELAY_<SECTION>_<KEY>; `ray-relay config check` shows what they come to. SIGTERM ends idle sessions, and waits for the others for listen.drain_timeout; a second one aborts.

Next: `ray-relay list` shows what waits, `ray-relay launch-config` attaches an editor.";

impl Fails for app::Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Identity(_) => Exit::Misconfigured,
            Self::UnexpectedEnd(_) => Exit::Defect,
            _ => Exit::Failed,
        }
    }
}

pub(super) async fn run(flags: Flags) -> Result<(), Failure> {
    let resolved = validate::resolve(&Sources::from_process(flags))?;
    logging::init(&resolved.config.log)?;
    app::run(resolved.config).await?;
    Ok(())
}
