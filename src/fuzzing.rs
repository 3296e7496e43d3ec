//! What `fuzz/` reaches beyond the interface. Compiled with the feature `fuzzing` alone.

/// What reads the list of a head, and the answers in which names are looked up.
pub mod registry {
    pub use ray_relay_ray::ray::registry::fuzzing::{looked_up, polled};
}

/// The dashboard's answers with other addresses.
pub mod rewrite {
    pub use crate::http::rewrite::rewrite;
}

/// What a line at the pdb prompt means.
pub mod pdb {
    pub use ray_relay_debugger::pdb::breakpoints::{PromptBreakpoint, PromptBreakpoints};
    pub use ray_relay_debugger::pdb::grammar::{
        LONGEST_EXPANDED, PdbCommand, expand, first, parse, resumes, span,
    };
    pub use ray_relay_debugger::pdb::location::{Location, read};
}
