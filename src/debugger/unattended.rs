//! A debugger that is kept without a client, by a relay or by an agent: what of its messages has to be seen, and when another
//! client may go on with it.

use std::time::Duration;

use super::Worker;
use crate::memory::Account;
use crate::wire::dap::kept;
use crate::wire::dap::peek::Depth;
use crate::wire::dap::scanner::Rules;
use crate::wire::dap::splice::{NullPeer, Side, Splice};

/// How long the debugger may still work on what the lost client has asked, when another one wants to go on.
pub(crate) const BUSY: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Of a worker's messages those that whoever keeps it has to see, of at most `max_captured` bytes.
pub(crate) fn rules(max_captured: usize) -> Rules {
    Rules {
        depth: Depth::Deciding,
        captures: kept::matters,
        max_captured,
        max_passed: usize::MAX / 2,
    }
}

impl Splice<NullPeer, Worker> {
    /// `worker`, kept without a client; `from_worker` was read from it already. What is under way is taken from `account`.
    pub(crate) fn keeping(
        account: Account,
        worker: Worker,
        from_worker: Vec<u8>,
        max_captured: usize,
    ) -> Self {
        let rules = || rules(max_captured);
        Self::new(
            account,
            NullPeer,
            Vec::new(),
            rules(),
            worker,
            from_worker,
            rules(),
        )
    }

    /// Every answer to the lost client is here and thrown away, so that none of them comes to the next one, who counts its
    /// requests from 1 as that one did.
    pub(crate) fn is_ready(&self) -> bool {
        self.worker().is_quiet()
            && self.drained(Side::Worker)
            && self.is_whole()
            && self.idle(Side::Client)
    }
}
