//! Lines in the consoles of editors that are connected: that the network is lost, and that it is back.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::message::notice;

/// Lines that wait for one connection; more are dropped.
const MAX_WAITING: usize = 8;

/// The connections that are told.
#[derive(Default)]
pub(super) struct EditorNotices(Mutex<Vec<mpsc::Sender<Arc<[u8]>>>>);

impl EditorNotices {
    /// Tells the editor of each connection.
    pub(super) fn tell(&self, text: &str) {
        let line: Arc<[u8]> = frame(&notice(text, false)).into();
        // One that reads nothing is not told.
        self.0
            .lock()
            .retain(|editor| !editor.is_closed() && editor.try_send(Arc::clone(&line)).is_ok());
    }

    /// The lines for another editor.
    pub(super) fn lines(&self) -> mpsc::Receiver<Arc<[u8]>> {
        let (sender, lines) = mpsc::channel(MAX_WAITING);
        self.0.lock().push(sender);
        lines
    }
}
