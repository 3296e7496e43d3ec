//! `ray-relay keeper`: holds duplicates of a relay's connections to debuggers, for the next relay.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::failure::Failure;
use crate::app;
use ray_relay_access::telemetry::logging;
use ray_relay_base::config::{Log, LogFormat};
use ray_relay_base::shutdown::Signals;
use ray_relay_debugger::keeper::serve;

pub(super) const AFTER_HELP: &str = "\
Example:
  ray-relay keeper /run/ray-relay-keeper/socket
  ray-relay serve --keeper /run/ray-relay-keeper/socket …

A relay that is killed closes its connections to debuggers, and their tasks run on. With a keeper the tasks stay where they are: the next relay has their sessions parked, and their users resume at the same line. The keeper runs as the relay's user, and neither reads nor writes on these connections. Run it as a service, or a container, of its own, so that it outlives the relay. With systemd there is no need for one, see docker/systemd/ray-relay.service.

A connection that no relay claims is closed after a day. SIGTERM: the keeper goes on until a relay has claimed the connections that no relay has; a second one closes them, and their tasks run on.";

/// `keeper`
#[derive(Debug, Args)]
pub struct KeeperArgs {
    /// The Unix socket to listen at: an absolute path in a folder that is this user's own, or is to be made
    #[arg(value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub path: PathBuf,
    /// Form of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

pub(super) async fn run(args: KeeperArgs) -> Result<(), Failure> {
    let signals = Signals::new().map_err(app::Error::Signal)?;
    logging::init(&Log {
        format: args.log_format,
        ..Log::default()
    })?;
    // If the limit cannot be raised, there is room for fewer connections.
    _ = app::raise_open_files();
    let served = serve::serve(&args.path, signals).await;
    served.map_err(app::Error::Keeper)?;
    Ok(())
}
