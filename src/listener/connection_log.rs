//! Logs the summary of a connection once, whatever ends it.

use std::sync::Arc;

use ray_relay_access::connection::summary::Summary;
use ray_relay_session::context::Context;

/// Logs the summary of a connection when dropped.
pub(super) struct ConnectionLog {
    summary: Summary,
    context: Arc<Context>,
}

impl ConnectionLog {
    pub(super) fn new(summary: Summary, context: &Arc<Context>) -> Self {
        let context = Arc::clone(context);
        Self { summary, context }
    }
}

impl Drop for ConnectionLog {
    fn drop(&mut self) {
        self.summary.log_end(self.context.traces.as_deref());
    }
}
