//! The session to which a connection to a debugger belongs.

use std::any::Any;
use std::fmt::Debug;
use std::pin::Pin;

/// The session that has the worker, as far as the connection to its debugger has to notify it. An agent's connection
/// has none: there the session belongs to a relay.
pub trait Tenant: Debug + Send + Sync {
    /// Notifies that the task may run from now on.
    fn let_run(&self);

    /// Returns a guard while the debugger has not finished this session: the next client of the worker must not
    /// connect before it is dropped. `None`: there is no worker to release.
    fn settling(&self) -> Option<Box<dyn Any + Send>>;

    /// Releases the worker for the next session. Idempotent.
    fn release(&mut self);

    /// Makes sure that the task does not stop unnoticed after a detach from a configured debugger. Owned by the
    /// session that has detached.
    fn look_after(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
