//! For whom a connection to a debugger is there.

use std::any::Any;
use std::fmt::Debug;
use std::pin::Pin;

/// The session that has the worker, as far as the connection to its debugger has to tell it something. An agent's connection
/// has none: there the session is a relay's.
pub trait Tenant: Debug + Send + Sync {
    /// The task may run from now on.
    fn let_run(&self);

    /// The debugger is not over this session yet: the next client of the worker is not to dial it before what this returns is
    /// dropped. `None`: there is no worker to give back.
    fn settling(&self) -> Option<Box<dyn Any + Send>>;

    /// The worker is free for the next session. Once is enough.
    fn give_back(&mut self);

    /// The debugger was left after it had been configured: sees to it that the task stands nowhere unseen. To be owned by
    /// the session that has left it.
    fn look_after(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
