//! Notices: a webhook is notified of breakpoints that wait too long, of how they ended, and of jobs that hang.
//!
//! [`watch`] follows the registry and decides what is worth a notice, [`message`] puts it into words, and [`delivery`]
//! posts one after another to the [`target`], with retries. The queue is bounded, and lost when the relay ends: nothing
//! important depends on a notice.

mod delivery;
mod message;
mod queue;
mod target;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use tracing::info;

use self::queue::Queue;
use self::target::Target;
use self::watch::Watch;
use ray_relay_base::config::{self, Fault};
use ray_relay_base::key_mode::{Holds, warn_if_open};
use ray_relay_session::context::Context;

/// Notifies a webhook of breakpoints.
pub struct Notices {
    config: config::Notice,
    target: Target,
}

impl Notices {
    /// Creates the notices that `config` asks for; `None` if it names no webhook. Reads its files. Blocks.
    ///
    /// # Errors
    /// Every [`Fault`], as sentences.
    pub fn new(config: &config::Notice) -> Result<Option<Self>, String> {
        let Some(url_file) = &config.url_file else {
            return Ok(None);
        };
        let target = Target::load(config, url_file).map_err(|faults| {
            let sentences: Vec<String> = faults.iter().map(ToString::to_string).collect();
            sentences.join("\n  ")
        })?;
        for path in config.url_file.iter().chain(&config.key_file) {
            warn_if_open(path, Holds::Secret);
        }
        Ok(Some(Self {
            config: config.clone(),
            target,
        }))
    }

    /// Posts notices until the relay is closed. Once it drains, it no longer reports waiting tasks and jobs that hang,
    /// but still how its own sessions end.
    pub async fn run(self, ctx: Arc<Context>) {
        let queue = Queue::new(ctx.metrics.clone());
        let (draining, closed) = (&ctx.shutdown.drain, &ctx.shutdown.closed);
        info!(webhook = self.target.host(), "notices are posted");
        tokio::select! {
            () = closed.cancelled() => {}
            () = Watch::new(&self.config, &queue).run(&ctx.registry, draining) => {}
            () = watch::failures(&self.config, &queue, ctx.peers.agents.failing()) => {}
            () = watch::hangs(&self.config, &queue, ctx.hangs.new_hangs()) => {}
            () = delivery::run(&self.target, self.target.host(), &queue, &ctx.metrics) => {}
        }
        let lost = queue.len();
        if lost > 0 {
            info!(lost, "notices that were not posted yet are lost");
        }
    }
}

/// Returns every fault of the files in `config` that prevents posting. Blocks.
pub fn check(config: &config::Notice) -> Vec<Fault> {
    let target = config.url_file.as_deref();
    let loaded = target.map(|url_file| Target::load(config, url_file));
    loaded.and_then(Result::err).unwrap_or_default()
}
