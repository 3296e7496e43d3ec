//! Values of metric labels: closed sets, so that no client can make new series.

/// Declares a closed set of label values.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$value_doc])* $value,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// The value of the label.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }
    };
}

labels! {
    /// The protocol of a connection by its first bytes, inside TLS if used.
    Protocol {
        /// Relay's API or dashboard.
        Http = "http",
        /// A debugger client.
        Dap = "dap",
        /// TLS that is not served, or that ended in its handshake.
        Tls = "tls",
        /// A person with `nc`.
        Terminal = "terminal",
        /// Anything else, or nothing.
        Unknown = "unknown",
    }
}

labels! {
    /// Why a connection, session or request was refused.
    RefusalKind {
        /// The client broke its protocol, or was too slow or too large.
        Client = "client",
        /// Not allowed: unknown host, another origin, a missing permission.
        Forbidden = "forbidden",
        /// No such breakpoint, cluster or path.
        NotFound = "not_found",
        /// Another session holds the breakpoint.
        InUse = "held",
        /// A limit of the relay is reached.
        Limited = "limited",
        /// The worker, or its debugger, did not answer as it should.
        Upstream = "upstream",
        /// The list of breakpoints is missing or stale.
        Registry = "registry",
        /// The protocol is not served (yet).
        Unsupported = "unsupported",
        /// A defect of the relay.
        Internal = "internal",
    }
}

labels! {
    /// Protocol of a session.
    SessionProtocol {
        /// A debugger on one worker.
        Dap = "dap",
        /// The parent session that opens one for every paused worker.
        Cluster = "dap_cluster",
        /// A person at a terminal: the list, or a prompt.
        Terminal = "terminal",
        /// A WebSocket through the dashboard proxy.
        WebSocket = "websocket",
        /// A worker that has dialled a debugger that listens.
        Reverse = "reverse",
        /// A line that is armed in a running job.
        Lines = "lines",
    }
}

labels! {
    /// The client of a session by its own statement, which proves nothing.
    Editor {
        /// VS Code, and whatever is made of it or calls itself that.
        VsCode = "vscode",
        /// PyCharm and its kin.
        PyCharm = "pycharm",
        /// Neovim.
        Neovim = "nvim-dap",
        /// Emacs.
        Emacs = "emacs",
        /// debugpy's own tools.
        Debugpy = "debugpy",
        /// A person at a prompt: with `nc`, with `ray-relay debug`, or on the page.
        Terminal = "terminal",
        /// Any other, and a client that names itself nothing.
        Other = "other",
    }
}

impl Editor {
    /// By the `clientID` of `initialize`.
    pub fn of(id: &str) -> Self {
        let id = id.to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| id.contains(part));
        match () {
            () if has(&["vim"]) => Self::Neovim,
            () if has(&["emacs", "dape"]) => Self::Emacs,
            () if has(&["pycharm", "intellij", "jetbrains"]) => Self::PyCharm,
            () if has(&["vscode", "visual studio code"]) => Self::VsCode,
            () if has(&["debugpy"]) => Self::Debugpy,
            () if has(&["ray-relay"]) => Self::Terminal,
            () => Self::Other,
        }
    }
}

labels! {
    /// Where a request to a head comes from.
    Asker {
        /// The relay, for the list.
        Poll = "poll",
        /// A client, through the relay.
        Proxy = "proxy",
    }
}

labels! {
    /// How a session ended.
    Outcome {
        /// The client ended it.
        Client = "client",
        /// The other side ended it.
        Upstream = "upstream",
        /// The worker process or its node died.
        Died = "died",
        /// The worker process ended as it was meant to, such as with its job.
        Finished = "finished",
        /// The relay was shut down.
        Drained = "drained",
        /// The client's credential was revoked or expired.
        Revoked = "revoked",
        /// The session or idle limit was reached.
        Limit = "limit",
        /// Its owner or an administrator has asked for its end.
        Asked = "asked",
        /// Its client was lost, and did not come again in time.
        Expired = "expired",
        /// Its client was lost, and another connection of the same person goes on with it.
        TakenOver = "taken_over",
        /// Its client was lost, and its task was released.
        Released = "released",
        /// The session was refused before it began.
        Refused = "refused",
        /// A protocol error, a limit or a broken connection.
        Failed = "failed",
    }
}

labels! {
    /// Which way bytes went.
    Direction {
        /// From the client to the worker or head.
        Up = "up",
        /// From the worker or head to the client.
        Down = "down",
    }
}

labels! {
    /// How a request to a head ended.
    HeadOutcome {
        /// Any answer below 400.
        Ok = "ok",
        /// 4xx of a proxied request; Ray's token missing or wrong.
        Refused = "refused",
        /// 5xx of a proxied request; an error answer to a poll.
        Error = "error",
        /// No connection to the head.
        Unreachable = "unreachable",
        /// No answer in time.
        Timeout = "timeout",
        /// An answer that made no sense.
        Invalid = "invalid",
    }
}

labels! {
    /// How the link of an agent ended.
    LinkEnd {
        /// The agent ended it.
        Left = "left",
        /// The connection broke, or nothing was heard from the agent.
        Lost = "lost",
        /// The same agent has another link.
        Replaced = "replaced",
        /// Two agents claimed the same node.
        Contested = "contested",
        /// The agent's credential was revoked or expired.
        Revoked = "revoked",
        /// The agent sent too much.
        Flood = "flood",
        /// The agent sent an invalid message, or nothing.
        Invalid = "invalid",
        /// The agent may speak for no node.
        Refused = "refused",
        /// The relay was shut down.
        Drained = "drained",
        /// The audit log takes nothing, or the system is broken.
        Internal = "internal",
    }
}

labels! {
    /// The outcome of a request for a stream of an agent.
    StreamOutcome {
        /// The debugger is there.
        Ok = "ok",
        /// The agent does not open it.
        Refused = "refused",
        /// The agent cannot reach the debugger.
        Failed = "failed",
        /// The link ended meanwhile.
        Lost = "lost",
        /// The agent took too long.
        Timeout = "timeout",
        /// There are as many as there may be.
        Limited = "limited",
        /// The agent does not speak the protocol.
        Invalid = "invalid",
    }
}

labels! {
    /// The purpose of an HTTP request.
    Route {
        /// The list, `/relay/v1/breakpoints`.
        Breakpoints = "breakpoints",
        /// The live sessions, `/relay/v1/sessions`.
        Sessions = "sessions",
        /// The event stream, `/relay/v1/events`.
        Events = "events",
        /// Revocations, `/relay/v1/revocations`.
        Revocations = "revocations",
        /// Releases, `/relay/v1/release`.
        Release = "release",
        /// Tasks that are left where they are, `/relay/v1/park`.
        Park = "park",
        /// Commands for many tasks at once, `/relay/v1/group`.
        Group = "group",
        /// The nodes with their agents, their links and streams, below `/relay/v1/nodes`.
        Nodes = "nodes",
        /// Diagnoses, `/relay/v1/doctor`.
        Doctor = "doctor",
        /// The identity of the client, `/relay/v1/whoami`.
        Whoami = "whoami",
        /// Looks at a task that waits, `/relay/v1/snapshot`.
        Snapshot = "snapshot",
        /// Tasks that wait beside each other, `/relay/v1/compare`.
        Compare = "compare",
        /// Jobs by their names, `/relay/v1/jobs`.
        Jobs = "jobs",
        /// Tasks that run, `/relay/v1/tasks`.
        Tasks = "tasks",
        /// Looks at tasks that run, `/relay/v1/looks`.
        Looks = "looks",
        /// Armed lines of a running job, `/relay/v1/arm`.
        Arm = "arm",
        /// Terminals of the page, `/relay/v1/terminal`.
        Terminal = "terminal",
        /// The page at `/relay/`, with its files.
        Page = "page",
        /// The rendezvous of debuggers that listen, below `/relay/v1/reverse`.
        Reverse = "reverse",
        /// The links of `ray-relay connect`, `/relay/v1/connect`.
        Connect = "connect",
        /// `/relay/healthz` and `/relay/readyz`.
        Health = "health",
        /// The metrics, `/relay/metrics`.
        Metrics = "metrics",
        /// The dashboard of the default cluster.
        Dashboard = "dashboard",
        /// The dashboard of a named cluster, below `/relay/clusters/NAME/`.
        Cluster = "cluster",
        /// Another path below `/relay/`.
        Unknown = "unknown",
        /// Refused before the path was looked at.
        Refused = "refused",
    }
}

labels! {
    /// How a TLS handshake ended.
    Handshake {
        /// The connection is encrypted.
        Ok = "ok",
        /// No common ground, a certificate that is not accepted, or a client that left.
        Failed = "failed",
        /// The handshake was not done within `listen.handshake_timeout`.
        Timeout = "timeout",
    }
}

labels! {
    /// The outcome of a reload of TLS files.
    Reload {
        /// New connections get what they hold.
        Ok = "ok",
        /// The files are unusable; those from before stay in use.
        Refused = "refused",
    }
}

labels! {
    /// The outcome of the export of a connection's trace.
    TraceOutcome {
        /// The collector has it.
        Sent = "sent",
        /// The collector did not take it.
        Failed = "failed",
        /// Too many others waited.
        Dropped = "dropped",
    }
}

labels! {
    /// The outcome of a notice for the webhook.
    NoticeOutcome {
        /// The webhook took it.
        Delivered = "delivered",
        /// It was refused, or not taken within an hour.
        Failed = "failed",
        /// Too many others came while it waited.
        Dropped = "dropped",
    }
}
