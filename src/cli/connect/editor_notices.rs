//! Notices in the consoles of connected editors: that the network is lost, and that it is back.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::message::notice;

/// Maximum number of queued lines per connection; more are dropped.
const MAX_QUEUED_LINES: usize = 8;

/// The connections to notify.
#[derive(Default)]
pub(super) struct EditorNotices(Mutex<Vec<mpsc::Sender<Arc<[u8]>>>>);

impl EditorNotices {
    /// Notifies the editor of each connection.
    pub(super) fn notify(&self, text: &str) {
        let line: Arc<[u8]> = frame(&notice(text, false)).into();
        // An editor that reads nothing is dropped.
        self.0
            .lock()
            .retain(|editor| !editor.is_closed() && editor.try_send(Arc::clone(&line)).is_ok());
    }

    /// Registers another editor, and returns its lines.
    pub(super) fn lines(&self) -> mpsc::Receiver<Arc<[u8]>> {
        let (sender, lines) = mpsc::channel(MAX_QUEUED_LINES);
        self.0.lock().push(sender);
        lines
    }
}
